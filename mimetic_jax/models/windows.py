"""Attention within windows of a grid, with a learned bias per relative position."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.errors import InputError
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

    Raises:
        InputError: if H doesn't divide D, or W a side of the grid.

    Example:
        >>> layer = WindowAttention(num_heads=2, window=4)
        >>> params = layer.init(jax.random.key(0), jnp.ones((1, 8, 8, 16)))["params"]
        >>> params["query"]["kernel"].shape, params["relative_bias"].shape
        ((16, 2, 8), (49, 2))

    Reference: Swin Transformer, section 3.2. Tables per head are those of its released code; the
    shared table is that of kentaroy47/vision-transformers-cifar10.
    """

    window: int = 7
    shared_bias: bool = False

    @nn.compact
    def __call__(self, x: jax.Array, shift: int | jax.Array | None = None) -> jax.Array:
        """[B, h, w, D] from [B, h, w, D]; `shift` may be traced, and None or 0 is no shift."""
        rows, columns = x.shape[1:3]
        if rows % self.window or columns % self.window:
            raise InputError(f"window {self.window} does not divide the {rows}x{columns} grid")
        if not isinstance(shift, jax.Array) and not shift:
            return self._within(x, self.attend)
        attend = functools.partial(self.attend, mask=self._neighbors(rows, columns, shift))
        return _rolled(self._within(_rolled(x, -shift), attend), shift)

    def _within(self, x: jax.Array, attend: Callable[..., jax.Array]) -> jax.Array:
        """Attention in each window, [B, h, w, D]."""
        rows = x.shape[1]
        x = self.around(attend, self._windows(x, "b", "d"))
        return einops.rearrange(
            x, "b (i j) (p q) d -> b (i p) (j q) d", i=rows // self.window, p=self.window
        )

    def attend(
        self, query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array | None = None
    ) -> jax.Array:
        """What each head gathers, [B, windows, N, H, K] from three of that shape."""
        logits = jnp.einsum(
            "bwqhk,bwshk->bwhqs", query, key, preferred_element_type=jnp.float32
        ) / np.sqrt(query.shape[-1])
        logits += self._bias()
        if mask is not None:
            logits = jnp.where(mask, logits, -jnp.inf)
        attention = jax.nn.softmax(logits).astype(value.dtype)
        return jnp.einsum("bwhqs,bwshk->bwqhk", attention, value)

    def _windows(self, grid: jax.Array, before: str = "", after: str = "") -> jax.Array:
        """[..., windows, N, ...] from [..., h, w, ...]; both in row-major order."""
        return einops.rearrange(
            grid,
            f"{before} (i p) (j q) {after} -> {before} (i j) (p q) {after}",
            p=self.window,
            q=self.window,
        )

    def _bias(self) -> jax.Array:
        """B [H, N, N] float32, or [1, N, N] where heads share it."""
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
        region = self._windows(2 * wrapped_row[:, None] + wrapped_column)
        return (region[:, :, None] == region[:, None, :])[:, None]


def _rolled(x: jax.Array, shift: Any) -> jax.Array:
    """[B, h, w, D] with its rows moved down, and its columns to the right, around the borders."""
    return jnp.roll(x, (shift, shift), axis=(1, 2))
