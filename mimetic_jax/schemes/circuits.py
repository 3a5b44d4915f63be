"""Heads of content, to stand beside `PositionalHeads`: equal tokens, and what followed them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes.base import Scheme, attention_kernels, both_or_none
from mimetic_jax.schemes.block import Block, Context
from mimetic_jax.schemes.kernels import semi_orthogonal
from mimetic_jax.schemes.mimetic import pair_roles, pair_sizes
from mimetic_jax.schemes.positional import check_base
from mimetic_jax.weights.checks import NOT_NEGATIVE, POSITIVE
from mimetic_jax.weights.rotary import AXES, BASE, SHARE, Pairs, Rotary

_HEAD = Range(0)


@dataclasses.dataclass(frozen=True)
class _Turning(Scheme):
    """Base of schemes that need the slow pairs of rotary positions, which keep content.

    Attributes:
        base, turned, pairs, axes: of the model's rotary positions, see `PositionalHeads`.
        slowest: pairs that turn by less than this per token are slow, in radians.
    """

    base: Annotated[float, BASE] | None = None
    turned: Annotated[float, SHARE] = 1.0
    pairs: Pairs = "halves"
    axes: Annotated[int, AXES] = 1
    slowest: Annotated[float, POSITIVE] = 0.05

    def validate(self) -> None:
        check_base(self.base)

    def slow_columns(self, head_dim: int) -> np.ndarray:
        """Which of K columns turn slowly or not at all."""
        rotary = Rotary(self.base or 0, self.turned, self.pairs, self.axes)
        slow_F = np.abs(rotary.rates(head_dim)).max(axis=1) < self.slowest
        both = np.tile(slow_F, 2) if self.pairs == "halves" else np.repeat(slow_F, 2)
        columns = np.concatenate([both, np.ones(head_dim - len(both), bool)])
        if not columns.any():
            raise InputError(f"all {head_dim} columns of a head turn faster than {self.slowest}")
        return columns


@dataclasses.dataclass(frozen=True)
class ContentHeads(_Turning):
    """W_Q = W_K on the slow pairs of all heads from `first` on: they look at tokens like the own.

    Queries of a group take the columns of its key. Norms stay about those of the default, which is
    the control.

    Attributes:
        first: the first head of content; those before it may be positional.

    Example:
        >>> sorted(ContentHeads(10_000).writes(frozenset({"query", "key", "query_bias"})))
        ['query']
    """

    first: Annotated[int, _HEAD] = 0

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return both_or_none(attention_kernels(roles), "query", "key") & {"query"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        sizes = pair_sizes(block, "query", "key")
        repeats = sizes["num_heads"] // sizes["num_kv_heads"]
        shared = jnp.repeat(block["key"], repeats, axis=1)
        content_H = np.arange(sizes["num_heads"]) >= self.first
        taken = content_H[:, None] & self.slow_columns(sizes["head_dim"])
        return {"query": jnp.where(taken, shared, block["query"])}


@dataclasses.dataclass(frozen=True)
class InductionCircuit(_Turning):
    """Two layers that look at what followed a token like the own, without a change of the model.

    With semi-orthogonal P_V, P_O [D, K] that a pair of layers shares, the head `copies` of the
    first layer has W_V W_out = c P_V P_Oᵀ: a previous-token head (`PositionalHeads`, δ = 1) then
    adds c x_{m−1} P_V P_Oᵀ to token m. The head `matches` of the second layer has W_Q = √β P_V and
    W_K = √β P_O on the slow pairs, so that q_n·k_m has β c (x_n P_V)·(x_{m−1} P_V).

    Attributes:
        copies, matches: indices of the heads.
        copy: c.
        match: β.
        seed: of P_V and P_O, which two layers share, so that they can't come from a layer's key.

    Example:
        >>> sorted(InductionCircuit(10_000).writes(frozenset({"query", "key", "value", "out"})))
        ['key', 'out', 'query', 'value']

    Reference: the circuit is that of In-context Learning and Induction Heads (Olsson et al. 2022).
    """

    by_depth: ClassVar[bool] = True
    copies: Annotated[int, _HEAD] = 1
    matches: Annotated[int, _HEAD] = 2
    copy: Annotated[float, NOT_NEGATIVE] = 1.0
    match: Annotated[float, NOT_NEGATIVE] = 1.0
    seed: int = 0

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return pair_roles(roles, query_key=True, value_out=True, zero_bias=False)

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        sizes = pair_sizes(block, "query", "key")
        dim, heads, width = (sizes[name] for name in ("dim", "num_heads", "head_dim"))
        if max(self.copies, self.matches) >= heads:
            raise InputError(f"heads {self.copies} and {self.matches} are not two of {heads}")
        pair, reads = divmod(context.layer, 2)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(self.seed), pair))
        first, second = (semi_orthogonal(each, dim, width) for each in keys)
        new = {role: block[role] for role in self.writes(frozenset(block))}
        repeats = heads // sizes["num_kv_heads"]
        if reads:
            slow, at, size = self.slow_columns(width), self.matches, self.match**0.5
            for role, head, part in (("query", at, first), ("key", at // repeats, second)):
                columns = jnp.where(slow, size * part, new[role][:, head])
                new[role] = new[role].at[:, head].set(columns)
        else:
            size = self.copy**0.5
            new["value"] = new["value"].at[:, self.copies // repeats].set(size * first)
            new["out"] = new["out"].at[self.copies].set(size * second.T)
        return new
