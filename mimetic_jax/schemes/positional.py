"""Heads that look at a distance, for models with rotary positions."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes.base import Block, Context, Scheme, attention_kernels, both_or_none
from mimetic_jax.schemes.mimetic import pair_sizes
from mimetic_jax.weights.checks import NOT_NEGATIVE, POSITIVE
from mimetic_jax.weights.rotary import AXES, BASE, SHARE, Pairs, Rotary

_TOKENS = Range(-1e6, 1e6, reason="tokens")
_Numbers = tuple[float, ...]
_Offsets = tuple[float | _Numbers | tuple[_Numbers, ...], ...]
_Sharpness = float | tuple[float | _Numbers, ...]


@dataclasses.dataclass(frozen=True)
class _Turning(Scheme):
    """Base of schemes that need to know how the columns of a head turn: see `PositionalHeads`.

    Pairs of columns that turn by at least `slowest` per token tell distances; slower ones keep
    content.
    """

    base: Annotated[float, BASE] | None = None
    _: dataclasses.KW_ONLY
    turned: Annotated[float, SHARE] = 1.0
    pairs: Pairs = "halves"
    axes: Annotated[int, AXES] = 1
    slowest: Annotated[float, POSITIVE] = 0.05

    def validate(self) -> None:
        if self.base is None:
            raise InputError(
                "base is missing: give the base of the model's rotary positions, rope_theta in its "
                "configuration, such as 10000; no weight shows it"
            )

    @property
    def rotary(self) -> Rotary:
        """The rotary positions of the model."""
        return Rotary(self.base or 0, self.turned, self.pairs, self.axes)


@dataclasses.dataclass(frozen=True)
class PositionalHeads(_Turning):
    """Each head looks at a distance δ: parts of query and key that don't depend on the token.

    With rotary positions nothing in the activations says where a token is, so W_Q W_Kᵀ ≈ βI can't
    make attention local. Trained rotary models do it with constant parts of query and key. In
    closed form, for the pair of columns f with rate θ_f as a complex number,

        b_Q = A_f e^{−iθ_f·δ},  b_K = A_f,  A_f² = S √K w_f,  Σ_f w_f = 1,

    which adds S Σ_f w_f cos θ_f·(n − m − δ) to the logit of query n and key m: a bump of height S
    at distance δ. w is uniform on the rates from `slowest` on. δ = 0 attends to the token itself as
    the self-attention paper's start does, 1 to the previous token; on a grid, offsets from the
    3×3 neighborhood are the structured paper's impulses. Query heads take the offsets in turn;
    those that share a key head differ in their query alone. Content kernels stay the model's own.

    *With biases* of query and key (Qwen 2, GPT-NeoX, Phi, our models) these become b_Q and b_K.

    *Without* (Llama, Mistral, Qwen 3, Gemma), `channel` names one of the D channels that is made
    constant, as trained models do with one or two: rows of the embedding get the norm √D σ, σ that
    of their entries, and τ √D σ in the channel c, τ = ½; out and mlp_out don't write it, value,
    mlp_in, mlp_gate and an untied unembedding don't read it, and W_Q[c] = b_Q / y, W_K[c] = b_K / y
    with y = τ √D / √(1 + τ²), its value after RMSNorm of gain 1. That is exact in the first block.
    Deeper, y falls as 1/rms of the activations, and S with its square: in a GPT of 12 layers and
    width 384 y is .93 of that after the first block and .62 after the last, with embeddings a
    quarter as large .71 and .28.

    *With QK norm* a query of norm ‖q‖ is multiplied by γ √K / ‖q‖. Its gain, if the tree has it,
    becomes γ_q = √((S √K + ‖W_Q‖²) / K), ‖W_Q‖² the mean over heads, so that S stays what it is and
    content what it is without the norm; with γ = 1 logits can't exceed √K.

    Attributes:
        base, turned, pairs, axes: the model's rotary positions, see `Rotary`; the base is
            "rope_theta" of its configuration, which weights don't show, so it has no default.
        offsets: δ in tokens, 0 or more for the past; pairs of (rows, columns) if `axes` is 2.
            Or a tuple of such tuples, from the first layer to the last of a network of any depth:
            each layer takes the nearest.
        sharpness: S, likewise: one number, numbers in turn, or a tuple of these by depth. A head
            with 0 has no constant part: by default four of every eight heads look 0 to 3 tokens
            back, since in a model of 12 layers and 8 heads 8 for all was worse than none.
        slowest: the lowest rate in use, in radians per token.
        channel: c, for models whose query and key have no biases; None for those with biases.
        random_phases: the control: the same A_f, with a random phase for each pair of each head.

    Example:
        >>> roles = frozenset({"query", "key", "value", "query_bias", "key_bias"})
        >>> sorted(PositionalHeads(10_000).writes(roles))
        ['key_bias', 'query_bias']

    Reference: ours, from the weights of trained models: docs/trained.md. That they have such parts
    is found in Rotary Outliers and Rotary Offset Features (Jonasson 2025, arXiv 2503.01832).
    """

    gated = True
    offsets: Annotated[_Offsets, _TOKENS] = (0, 1, 2, 3)
    sharpness: Annotated[_Sharpness, NOT_NEGATIVE] = (8.0,) * 4 + (0.0,) * 4
    _: dataclasses.KW_ONLY
    channel: Annotated[int, Range(0)] | None = None
    random_phases: bool = False

    @property
    def by_depth(self) -> bool:  # type: ignore[override]
        """Whether offsets or sharpness are given by depth."""
        return _nesting(self.offsets) > self.axes or _nesting(self.sharpness) > 1

    def validate(self) -> None:
        super().validate()
        if not self.offsets or self.sharpness == ():
            raise InputError("offsets and sharpness need at least one number")
        rows = _rows(self.offsets, self.axes)
        flat = [offset for row in rows for offset in (row if isinstance(row, tuple) else (row,))]
        for offset in flat:
            if self.axes != (len(offset) if isinstance(offset, tuple) else 1):
                form = "numbers" if self.axes == 1 else "pairs of (rows, columns)"
                raise InputError(f"offset {offset}: on {self.axes} axes offsets are {form}")

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        kernels = attention_kernels(roles)
        attends = bool(both_or_none(kernels, "query", "key"))
        gains = roles & {"query_gain", "key_gain"} if attends else frozenset()
        if self.channel is None:
            biases = roles & {"query_bias", "key_bias"} if attends else frozenset()
            if attends and len(biases) < 2:
                raise InputError(
                    "query and key have no biases to hold a constant part: give channel=0 to make "
                    "one channel of the activations constant, with a rule for the embedding"
                )
            return biases | gains
        kernels |= roles & {"mlp_in", "mlp_gate", "mlp_out", "embedding", "unembedding"}
        return kernels | gains | (roles & {f"{role}_bias" for role in kernels & _WRITERS})

    def check_tree(self, present: frozenset[str], written: frozenset[str]) -> None:
        if "position" in present:
            raise InputError(
                "the tree has a table of positions, which models with rotary positions lack: "
                "PositionalHeads is for these; if positions are added, Mimetic makes attention "
                "local"
            )
        if self.channel is not None and "embedding" not in written:
            raise InputError(
                f"channel {self.channel} is constant in the embedding of tokens alone, which no "
                "rule describes: put Rule(path, 'embedding', 't d') in front of the rules"
            )

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        written = self.writes(frozenset(block))
        new: dict[str, jax.Array] = {}
        if self.channel is not None:
            for role in sorted(written - {"query_gain", "key_gain"}):
                new[role] = self._with_constant_channel(role, block[role])
        if not {"query", "key"} <= block.keys():
            return new
        constant = self._constant_parts(key, block, context)
        for role, part in constant.items():
            if self.channel is None:
                new[f"{role}_bias"] = part
            else:
                y = constant_after_norm(block.shapes[role][0])
                new[role] = new[role].at[self.channel].set(part / y)
            if f"{role}_gain" in written:
                new[f"{role}_gain"] = _gain(block[role], part)
        return new

    def heads(self, count: int, layer: int = 0, num_layers: int = 1) -> list[tuple[Any, float]]:
        """(δ, S) of each of so many query heads of a layer.

        >>> PositionalHeads(10_000, offsets=(0, 1)).heads(3)
        [(0.0, 8.0), (1.0, 8.0), (0.0, 8.0)]
        """
        depth = layer / max(num_layers - 1, 1)
        rows = _rows(self.offsets, self.axes), _rows(self.sharpness, 1)
        offsets, sharpness = (row[round(depth * (len(row) - 1))] for row in rows)
        return [(offsets[h % len(offsets)], sharpness[h % len(sharpness)]) for h in range(count)]

    def every_offset(self) -> set[tuple[float, ...]]:
        """The offsets of all heads in all layers, one number per axis."""
        rows = _rows(self.offsets, self.axes)
        return {at if isinstance(at, tuple) else (at,) for row in rows for at in row}

    def _constant_parts(
        self, key: jax.Array, block: Block, context: Context
    ) -> dict[str, jax.Array]:
        """b_Q [H, K] and b_K [G, K], by the role of their kernel."""
        _, heads, width, groups = pair_sizes(block, "query", "key")
        rates_FxA, fast_F = self.rotary.rates(width), self.rotary.fast(width, self.slowest)
        if not fast_F.any():
            raise InputError(
                f"slowest {self.slowest} is above all rates of these rotary positions: the fastest "
                f"pair turns by {np.abs(rates_FxA).max():.3g} per token"
            )
        offsets, sharpness = zip(*self.heads(heads, context.layer, context.num_layers), strict=True)
        if self.random_phases:
            angles: Any = jax.random.uniform(key, (heads, len(fast_F)), maxval=2 * math.pi)
        else:
            angles = np.reshape(offsets, (heads, self.axes)) @ rates_FxA.T % (2 * math.pi)
        # The largest S of the heads that share a key is in the key, the rest in the queries.
        sharpness_GxR = np.reshape(sharpness, (groups, -1))
        largest_Gx1 = sharpness_GxR.max(axis=1, keepdims=True)
        key_GxF = np.sqrt(largest_Gx1 * np.sqrt(width) / fast_F.sum()) * fast_F
        share_GxR = sharpness_GxR / np.where(largest_Gx1 > 0, largest_Gx1, 1)
        query_HxF = (share_GxR[..., None] * key_GxF[:, None]).reshape(heads, -1)
        angles_HxF = jnp.asarray(angles, jnp.float32)
        return {
            "query": self._columns(
                query_HxF * jnp.cos(angles_HxF), -query_HxF * jnp.sin(angles_HxF), width
            ),
            "key": self._columns(key_GxF, np.zeros(key_GxF.shape), width),
        }

    def _columns(self, real: Any, imaginary: Any, head_dim: int) -> jax.Array:
        """Complex numbers of pairs [..., F] as the columns [..., K] of heads."""
        columns = jnp.zeros((*real.shape[:-1], head_dim))
        for place, part in zip(self.rotary.places(head_dim), (real, imaginary), strict=True):
            columns = columns.at[..., place].set(part)
        return columns

    def _with_constant_channel(self, role: str, array: jax.Array) -> jax.Array:
        """A kernel or bias that neither reads nor writes the channel, or the embedding with it."""
        width = array.shape[0 if role in _READERS | {"query", "key"} else -1]
        if self.channel is None or self.channel >= width:
            raise InputError(f"channel {self.channel} is not one of {width} channels, from 0")
        if role in _READERS:
            return array.at[self.channel].set(0)
        if role in ("query", "key"):
            return array
        array = array.at[..., self.channel].set(0)
        if role == "embedding":
            norms_Tx1 = jnp.linalg.norm(array, axis=-1, keepdims=True)
            norm = jnp.sqrt(jnp.mean(norms_Tx1**2))
            array = array * (norm / jnp.where(norms_Tx1 > 0, norms_Tx1, 1))
            array = array.at[:, self.channel].set(_TAU * norm)
        return array


_TAU = 0.5
"""τ: the constant channel has τ²/(1 + τ²), a fifth, of the energy of the first activations."""


def constant_after_norm(dim: int) -> float:
    """y = τ √D / √(1 + τ²): the constant channel among D after RMSNorm of gain 1.

    >>> round(constant_after_norm(64), 3)
    3.578
    """
    return _TAU * math.sqrt(dim / (1 + _TAU**2))


_READERS = frozenset({"value", "mlp_in", "mlp_gate"})
_WRITERS = frozenset({"out", "mlp_out"})


def _gain(kernel_DxHxK: jax.Array, bias_HxK: jax.Array) -> jax.Array:
    """γ [K] of a norm that keeps the average size of queries or keys."""
    squares = jnp.square(kernel_DxHxK).sum(axis=(0, 2)) + jnp.square(bias_HxK).sum(axis=1)
    width = bias_HxK.shape[-1]
    return jnp.full(width, jnp.sqrt(squares.mean() / width))


def _nesting(value: Any) -> int:
    return 1 + _nesting(value[0]) if isinstance(value, tuple) and value else 0


def _rows(value: Any, level: int) -> tuple[Any, ...]:
    """Numbers by depth; if they aren't, as one row."""
    value = value if isinstance(value, tuple) else (value,)
    return value if _nesting(value) > level else (value,)
