"""Attention that uses the grid of its tokens: gated positions, and an added convolution."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.models.attention import Attention
from mimetic_jax.models.init import Initializer

FORMS = ("gpsa", "conv_logits", "conv_added", "conv_softmax")
"""The values of `ViT.attention` other than "standard"."""


class GatedAttention(Attention):
    """Gated positional self-attention: content and position each have a softmax, a gate mixes them.

    A_h = (1 − σ(g_h)) softmax(q_h k_hᵀ / √K) + σ(g_h) softmax(Δ v_h + b_h), where row (i, j) of Δ
    holds (Δx, Δy, Δx² + Δy²) of token j seen from token i. g starts at 1. The first ⌊√H⌋² heads
    start at v_h = (2 m, 2 n, −1), so that position alone attends around column offset m and row
    offset n; the offsets are those of a ⌊√H⌋×⌊√H⌋ filter, ±½ pixel for 4 heads. The value kernel
    starts as the identity. Tokens are those of the grid: there is no class token.

    Attributes:
        grid: (h, w), row by row, N = h·w.
        position_init: the initializer of the rows of v that are not local.

    Example:
        >>> layer = GatedAttention(num_heads=4, grid=(2, 2))
        >>> params = layer.init(jax.random.key(0), jnp.ones((1, 4, 16)))["params"]
        >>> params["position"]["kernel"][:, 0].tolist(), params["gate"].tolist()
        ([-1.0, -1.0, -1.0], [1.0, 1.0, 1.0, 1.0])

    Reference: ConViT (d'Ascoli et al. 2021), eqs. 6-10; Mimetic Initialization of Self-Attention
    Layers, table 2.
    """

    grid: tuple[int, int] = (0, 0)
    position_init: Initializer = nn.initializers.normal(0.02)

    def initial_kernel(self, name: str) -> Initializer:
        return _identity if name == "value" else self.kernel_init

    def attend(self, query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        _check_grid(self.grid, query.shape[1])
        gate: Any = self.param("gate", nn.initializers.ones, (self.num_heads,))
        scores = nn.Dense(self.num_heads, kernel_init=self._position, name="position")
        where = jax.nn.softmax(scores(_relative(self.grid)).transpose(2, 0, 1), axis=-1)
        share = jax.nn.sigmoid(gate)[:, None, None]
        what = jax.nn.softmax(_logits(query, key), axis=-1)
        return _mixed((1 - share) * what + share * where, value)

    def _position(
        self, key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike
    ) -> jax.Array:
        side = math.isqrt(self.num_heads)
        place = np.array(np.divmod(np.arange(side**2), side)) - (side - 1) / 2
        local = np.concatenate([2 * place, -np.ones((1, side**2))])
        return self.position_init(key, shape, dtype).at[:, : side**2].set(local)


class ConvAttention(Attention):
    """Attention with an added convolution C, a learned 3×3 filter per head that wraps around.

    - "conv_logits": softmax(q kᵀ / √K + γ C)
    - "conv_added": softmax(q kᵀ / √K) + γ C
    - "conv_softmax": softmax(q kᵀ / √K) + softmax(γ C)

    γ is one learned number per layer that starts at 1, and filters start normal of variance 1/9,
    one over their inputs: the paper states neither. Rows and columns of tokens in front of the
    grid, such as a class token, are zero in C.

    Attributes:
        form: one of the three.
        grid: (h, w) of the last h·w tokens, row by row.

    Reference: Mimetic Initialization of Self-Attention Layers, eqs. 14 and 15.
    """

    form: str = "conv_logits"
    grid: tuple[int, int] = (0, 0)

    def attend(self, query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        count = query.shape[1]
        _check_grid(self.grid, count, prefix=None)
        gamma: Any = self.param("gamma", nn.initializers.ones, ())
        initial = nn.initializers.normal(1 / 3)
        filters: Any = self.param("filters", initial, (3, 3, self.num_heads))
        convolution = gamma * jnp.einsum(
            "uvh,uvnm->hnm", filters, _circulant(self.grid), precision="highest"
        )
        front = count - math.prod(self.grid)
        convolution = jnp.pad(convolution, ((0, 0), (front, 0), (front, 0)))
        logits = _logits(query, key)
        if self.form == "conv_logits":
            return _mixed(jax.nn.softmax(logits + convolution, axis=-1), value)
        if self.form == "conv_softmax":
            convolution = jax.nn.softmax(convolution, axis=-1)
        return _mixed(jax.nn.softmax(logits, axis=-1) + convolution, value)


def _logits(query: jax.Array, key: jax.Array) -> jax.Array:
    """q kᵀ / √K in float32, [B, H, N, N]."""
    products = jnp.einsum("bnhk,bmhk->bhnm", query, key, preferred_element_type=jnp.float32)
    return products / math.sqrt(query.shape[-1])


def _mixed(attention: jax.Array, value: jax.Array) -> jax.Array:
    """[B, N, H, K]."""
    return jnp.einsum("bhnm,bmhk->bnhk", attention.astype(value.dtype), value)


def _relative(grid: tuple[int, int]) -> np.ndarray:
    """(Δx, Δy, Δx² + Δy²) from each token to each, [N, N, 3]."""
    y, x = np.divmod(np.arange(math.prod(grid)), grid[1])
    across, down = x - x[:, None], y - y[:, None]
    return np.stack([across, down, across**2 + down**2], axis=-1).astype(np.float32)


def _circulant(grid: tuple[int, int]) -> np.ndarray:
    """[3, 3, N, N]: 1 where token m is the neighbor of token n at that place of the filter."""
    h, w = grid
    y, x = np.divmod(np.arange(h * w), w)
    place = np.arange(3)[:, None, None] - 1
    down = (y + place[:, 0]) % h
    across = (x + place[:, 0]) % w
    target = down[:, None] * w + across[None]
    return (target[..., None] == np.arange(h * w)).astype(np.float32)


def _identity(key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike) -> jax.Array:
    return jnp.eye(shape[0], shape[1], dtype=dtype)


def _check_grid(grid: tuple[int, int], count: int, prefix: int | None = 0) -> None:
    front = count - math.prod(grid)
    if front < 0 or (prefix is not None and front != prefix):
        raise InputError(
            f"{count} tokens are not those of a {grid[0]}x{grid[1]} grid"
            + (': gpsa needs pool="mean", without a class token' if front == 1 else "")
        )
