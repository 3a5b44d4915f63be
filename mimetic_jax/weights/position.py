"""Sinusoidal position tables."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.weights.checks import ANY_SIGN, check_room, counts, number

TEMPERATURE = Range(1e-12, 1e12)
"""Range of temperatures: float64 holds the angles of a million positions."""


def square_grid(count: int) -> tuple[int, int] | None:
    """Return the sides of a square grid of so many positions, if there is one.

    >>> square_grid(16), square_grid(17)
    ((4, 4), None)
    """
    side = round(max(count, 0) ** 0.5)
    return (side, side) if side and side * side == count else None


def sincos_2d(
    h: int, w: int, dim: int, *, temperature: float = 10_000.0, scale: float = 1.0
) -> jax.Array:
    """Two-dimensional sin-cos positions of an h×w grid, row-major.

    γ · [sin x·ω_j, cos x·ω_j, sin y·ω_j, cos y·ω_j], ω_j = temperature^(−j / (D/4 − 1)).

    Args:
        h: rows of the grid.
        w: columns of the grid.
        dim: D, a multiple of 4.
        temperature: ratio of the highest to the lowest frequency.
        scale: γ, the amplitude (not the coordinates).

    Returns:
        [h·w, D] float32; every row has squared norm γ² D / 2.

    Raises:
        InputError: if D is not a positive multiple of 4, the grid is empty, or γ or the temperature
            is out of range.

    Example:
        >>> table = sincos_2d(14, 14, 192)
        >>> table.shape, round(float((table[0] ** 2).sum()))
        ((196, 192), 96)

    Reference: Mimetic Initialization of Self-Attention Layers, section 4 (positions) and
    figure on γ; the SimpleViT variant of the formula, which the paper leaves open.
    """
    h, w, dim = counts(h=h, w=w, dim=dim)
    temperature, scale = _checked_constants(temperature, scale)
    if dim % 4:
        raise InputError(f"2-D sin-cos positions need a multiple of 4, not dim {dim}")
    check_room((4, h * w, dim))  # twice in float64
    quarter = dim // 4
    omega = temperature ** (-np.arange(quarter) / max(quarter - 1, 1))
    y, x = np.meshgrid(np.arange(h), np.arange(w), indexing="ij")
    angles_x, angles_y = x.reshape(-1, 1) * omega, y.reshape(-1, 1) * omega
    waves = [np.sin(angles_x), np.cos(angles_x), np.sin(angles_y), np.cos(angles_y)]
    return jnp.asarray(scale * np.concatenate(waves, axis=1), jnp.float32)


def sincos_1d(
    length: int, dim: int, *, temperature: float = 10_000.0, scale: float = 1.0
) -> jax.Array:
    """One-dimensional sin-cos positions, sine and cosine interleaved.

    γ · [sin n·ω_0, cos n·ω_0, sin n·ω_1, …], ω_j = temperature^(−2j / D).

    Args:
        length: N, the number of positions.
        dim: D; an odd width drops the last cosine.
        temperature: ratio of the highest to the lowest frequency.
        scale: γ, the amplitude.

    Returns:
        [N, D] float32.

    Raises:
        InputError: if N or D is not positive, or γ or the temperature is out of range.

    Example:
        >>> sincos_1d(80, 410).shape
        (80, 410)

    Reference: Attention Is All You Need, section 3.5.
    """
    length, dim = counts(length=length, dim=dim)
    temperature, scale = _checked_constants(temperature, scale)
    check_room((4, length, dim))  # twice in float64
    omega = temperature ** (-2 * np.arange((dim + 1) // 2) / dim)
    angles = np.arange(length)[:, None] * omega
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, -1)[:, :dim]
    return jnp.asarray(scale * table, jnp.float32)


def _checked_constants(temperature: float, scale: float) -> tuple[float, float]:
    """Check both constants, and return them."""
    return number("temperature", temperature, TEMPERATURE), number("scale", scale, ANY_SIGN)
