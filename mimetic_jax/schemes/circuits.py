"""Heads of content, to stand beside `PositionalHeads`: equal tokens, and what followed them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes.base import Block, Context, attention_kernels, both_or_none
from mimetic_jax.schemes.kernels import semi_orthogonal
from mimetic_jax.schemes.mimetic import pair_roles, pair_sizes
from mimetic_jax.schemes.positional import _Turning
from mimetic_jax.weights.checks import NOT_NEGATIVE

_HEAD = Range(0)


@dataclasses.dataclass(frozen=True)
class ContentHeads(_Turning):
    """W_Q = W_K on the slow pairs of all heads from `first` on: they look at tokens like the own.

    Queries of a group take the columns of its key. Norms stay about those of the default, which is
    the control.

    Attributes:
        base, turned, pairs, axes, slowest: see `PositionalHeads`.
        first: the first head of content; those before it may be positional.
    """

    first: Annotated[int, _HEAD] = 0

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return both_or_none(attention_kernels(roles), "query", "key") & {"query"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        sizes = pair_sizes(block, "query", "key")
        shared = jnp.repeat(block["key"], sizes.repeats, axis=1)
        content_H = np.arange(sizes.num_heads) >= self.first
        taken = content_H[:, None] & _slow_columns(self, sizes.head_dim)
        return {"query": jnp.where(taken, shared, block["query"])}


@dataclasses.dataclass(frozen=True)
class InductionCircuit(_Turning):
    """Two layers that look at what followed a token like the own, without a change of the model.

    With semi-orthogonal P_V, P_O [D, K] that a pair of layers shares, the head `copies` of the
    first layer has W_V W_out = c P_V P_Oᵀ: a previous-token head (`PositionalHeads`, δ = 1) then
    adds c x_{m−1} P_V P_Oᵀ to token m. The head `matches` of the second layer has W_Q = √β P_V and
    W_K = √β P_O on the slow pairs, so that q_n·k_m has β c (x_n P_V)·(x_{m−1} P_V).

    Attributes:
        base, turned, pairs, axes, slowest: see `PositionalHeads`.
        copies, matches: indices of the heads.
        copy: c.
        match: β.
        seed: the seed of P_V and P_O, which two layers share, so that they can't come from a
            layer's key.

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
        if max(self.copies, self.matches) >= sizes.num_heads:
            raise InputError(
                f"heads {self.copies} and {self.matches} are not two of {sizes.num_heads}"
            )
        pair, reads = divmod(context.layer, 2)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(self.seed), pair))
        first, second = (semi_orthogonal(each, sizes.dim, sizes.head_dim) for each in keys)
        new = {role: block[role] for role in sorted(self.writes(frozenset(block)))}
        if reads:
            slow, at, size = _slow_columns(self, sizes.head_dim), self.matches, self.match**0.5
            for role, head, part in (("query", at, first), ("key", at // sizes.repeats, second)):
                columns = jnp.where(slow, size * part, new[role][:, head])
                new[role] = new[role].at[:, head].set(columns)
        else:
            size = self.copy**0.5
            new["value"] = new["value"].at[:, self.copies // sizes.repeats].set(size * first)
            new["out"] = new["out"].at[self.copies].set(size * second.T)
        return new


def _slow_columns(scheme: _Turning, head_dim: int) -> np.ndarray:
    """Which of K columns turn slowly or not at all: they keep content."""
    slow = np.ones(head_dim, bool)
    for part in scheme.rotary.places(head_dim):
        slow[part[scheme.rotary.fast(head_dim, scheme.slowest)]] = False
    if not slow.any():
        raise InputError(f"all {head_dim} columns of a head turn faster than {scheme.slowest}")
    return slow
