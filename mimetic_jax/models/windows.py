"""Attention within windows of a grid, with a learned bias per relative position."""

from __future__ import annotations

import functools
from typing import Any

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.models.attention import Attention


class WindowAttention(Attention):
    """Σ_h softmax(q_h k_hᵀ / √K + B_h) v_h W_out,h within each W×W window of a grid.

    Kernels have the names and shapes of `models.Attention`. B[n, m], from query n to key m, depends
    on the difference of their positions alone and is one of two parameters:

    - `relative_bias` [(2W−1)², H], a table per head: row (i + W−1) · (2W−1) + (j + W−1) for
      (i, j) = query − key.
    - `shared_bias` [2W−1, 2W−1], one table for all heads: entry (i + W−1, j + W−1) for
      (i, j) = key − query.

    Shifted windows come from rolling the grid by −`shift` rows and columns. Tokens that the roll
    brings together from opposite borders of the grid don't attend to each other. Softmax is float32
    in any dtype.

    Attributes:
        window: W, a divisor of both sides of the grid.
        shared_bias: one table for all heads instead of one per head.

    Example:
        >>> layer = WindowAttention(num_heads=2, window=4)
        >>> images = jnp.ones((1, 8, 8, 16))
        >>> params = jax.eval_shape(layer.init, jax.random.key(0), images)["params"]
        >>> params["query"]["kernel"].shape, params["relative_bias"].shape
        ((16, 2, 8), (49, 2))

    Reference: Swin Transformer, section 3.2. Tables per head are those of its released code; the
    shared table is that of kentaroy47/vision-transformers-cifar10.
    """

    window: int = 7
    shared_bias: bool = False

    @nn.compact
    def __call__(self, x: jax.Array, shift: int | jax.Array | None = None) -> jax.Array:
        """[B, h, w, D] from [B, h, w, D]; `shift` may be traced, and None or 0 means no shift."""
        rows, columns = x.shape[1:3]
        if not isinstance(shift, jax.Array) and not shift:
            return self.around(self.attend, x)
        attend = functools.partial(self.attend, mask=self._neighbors(rows, columns, shift))
        return _rolled(self.around(attend, _rolled(x, -shift)), shift)

    def attend(
        self, query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array | None = None
    ) -> jax.Array:
        """Return what each head gathers in its window, [B, h, w, H, K] from three of that shape."""
        # Tokens stay where they are on the grid: moving them beside those of their window would be
        # one more transposition of all activations, beside that of tokens and heads.
        q, k, v = (_split(array, self.window) for array in (query, key, value))
        logits = jnp.einsum("bipjqhk,birjshk->bijhpqrs", q, k, preferred_element_type=jnp.float32)
        batch, down, across, heads, *window = logits.shape
        count = self.window**2
        logits = logits.reshape(batch, down * across, heads, count, count)
        logits = logits / np.sqrt(query.shape[-1]) + self._bias()
        if mask is not None:
            logits = jnp.where(mask, logits, -jnp.inf)
        attention = jax.nn.softmax(logits).astype(value.dtype)
        attention = attention.reshape(batch, down, across, heads, *window)
        return jnp.einsum("bijhpqrs,birjshk->bipjqhk", attention, v).reshape(query.shape)

    def _bias(self) -> jax.Array:
        """B [H, N, N] float32, or [1, N, N] if heads share it."""
        last = self.window - 1
        side = 2 * self.window - 1
        at = np.stack(np.divmod(np.arange(self.window**2), self.window), axis=-1)
        offset = at - at[:, None]  # key - query, by [query, key]
        if self.shared_bias:
            table = self.param("shared_bias", nn.initializers.normal(1.0), (side, side))
            row, column = np.moveaxis(last + offset, -1, 0)
            return table[row, column][None]
        shape = (side**2, self.num_heads)
        table = self.param("relative_bias", nn.initializers.normal(0.02), shape)
        return table[(last - offset) @ (side, 1)].transpose(2, 0, 1)

    def _neighbors(self, rows: int, columns: int, shift: int | jax.Array) -> jax.Array:
        """Which keys a query may attend to after a roll, [windows, 1, N, N]."""
        wrapped_row = jnp.arange(rows) >= rows - shift
        wrapped_column = jnp.arange(columns) >= columns - shift
        regions = 2 * wrapped_row[:, None] + wrapped_column
        region = in_windows(regions[None], self.window)[0]
        return (region[:, :, None] == region[:, None, :])[:, None]


def in_windows(grid: jax.Array, side: int) -> jax.Array:
    """Reshape [B, h, w, ...] to [B, windows, N, ...], both in row-major order."""
    return einops.rearrange(grid, "b (i p) (j q) ... -> b (i j) (p q) ...", p=side, q=side)


def _split(grid: jax.Array, side: int) -> jax.Array:
    """[B, h / W, W, w / W, W, ...] from [B, h, w, ...], which moves nothing."""
    return einops.rearrange(grid, "b (i p) (j q) ... -> b i p j q ...", p=side, q=side)


def _rolled(x: jax.Array, shift: Any) -> jax.Array:
    """[B, h, w, D] with its rows moved down, and its columns to the right, around the borders."""
    return jnp.roll(x, (shift, shift), axis=(1, 2))
