"""Positions: tables for another resolution, and rotations."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.weights.rotary import rotary_rates


def resample(
    table: jax.typing.ArrayLike,
    grid_from: tuple[int, int],
    grid_to: tuple[int, int],
    prefix: int = 0,
) -> jax.Array:
    """Resample a position table to another grid of patches: bicubic, antialiased.

    Keys' cubic with a = −1/2, widened if the grid shrinks, and weights renormalized at the
    borders. That is PyTorch's `interpolate(mode="bicubic", antialias=True)`, which timm uses, to
    float precision. It isn't `antialias=False`, which the first DeiT code and Hugging Face use:
    a = −3/4 and repeated borders, never widened. On tables of white noise, the worst case, the
    two differ by a standard deviation of 0.07 from 14x14 to 16x16.

    Args:
        table: [1, N, D]: prefix rows, then the grid's, row by row.
        grid_from: (h, w) of the table.
        grid_to: (h, w) wanted.
        prefix: rows in front that belong to no patch and stay as they are: 1 with a class token.

    Returns:
        [1, prefix + h·w, D], in the table's dtype; the same values if the grids are equal.

    Raises:
        InputError: if the table is not one of prefix + h·w rows, or the wanted grid is empty.

    Example:
        >>> resample(jnp.ones((1, 5, 3)), (2, 2), (4, 4), prefix=1).shape
        (1, 17, 3)

    Reference: timm, layers/pos_embed.py.
    """
    table = jnp.asarray(table)
    (h, w), (new_h, new_w) = grid_from, grid_to
    if table.ndim != 3 or table.shape[:2] != (1, prefix + h * w):
        raise InputError(
            f"a position table of shape {table.shape} does not hold {prefix} rows and a {h}x{w} "
            "grid"
        )
    if new_h < 1 or new_w < 1:
        raise InputError(f"the grid {new_h}x{new_w} is empty")
    if (h, w) == (new_h, new_w):
        return table
    width = table.shape[-1]
    patches = table[0, prefix:].astype(jnp.float32).reshape(h, w, width)
    patches = jax.image.resize(patches, (new_h, new_w, width), "cubic", antialias=True)
    patches = patches.reshape(1, -1, width).astype(table.dtype)
    return jnp.concatenate([table[:, :prefix], patches], axis=1)


def rotated(x: jax.Array, positions: jax.Array, base: float) -> jax.Array:
    """Queries or keys turned by their position, so that products depend on distances alone.

    Of x [B, N, H, K] (x_j, x_{j + K/2}) turns by the angle θ_j · p at position p, θ of
    `weights.rotary_rates`, in float32. Positions are [N, a]: a line, or rows and columns of a grid.

    >>> turned = rotated(jnp.ones((1, 2, 1, 2)), jnp.arange(2)[:, None], base=10_000.0)
    >>> print(turned[0, :, 0].round(1))  # by 0 and by 1
    [[ 1.   1. ]
     [-0.3  1.4]]

    Reference: RoFormer (Su et al. 2021), eq. 34, its pairs half a head apart as in GPT-NeoX.
    """
    rates = rotary_rates(x.shape[-1], base, positions.shape[-1])
    angles = sum(p[:, None, None] * r for p, r in zip(positions.T, rates.T, strict=True))
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = [first * cos - second * sin, first * sin + second * cos]
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)
