"""Affine maps without gathers, for TPUs: three shears of whole pixels, then a small window.

A gather on a TPU moves a pixel at a time. A shear is a few selections between an image and itself
shifted, and three of them (Paeth 1986) bring every pixel to within a few pixels of where the map
takes it: what remains is a sum over a window, whose weights are zero but for the pixels that the
interpolation uses.

An image is [h, w, C]; positions are those of `geometry.affine` less 1/2, so that pixels have whole
numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

# Rotations of up to 30 degrees are shears by 0.27 across, 0.5 down and 0.27 across, and shears of
# up to 0.3 across are twice half of that. The bounds below hold for both.
STEEPEST = 0.27
# Pixels from where three rounded shears put a pixel that a window has to include: at 30 degrees,
# 1.2 from rounding and 1.37 times the reach of the interpolation, which is 1/2, 1 or 2 pixels.
WINDOWS = {"nearest": 1, "bilinear": 2, "bicubic": 3, "random": 3}

Shift = Callable[[jax.Array], jax.Array]


def sampled(
    image: jax.Array,
    matrix: jax.Array,
    x: jax.Array,
    y: jax.Array,
    interpolation: str,
    cubic: jax.Array | bool,
) -> jax.Array:
    """Return the levels of an image at positions that an affine map gives; arbitrary outside the
    image.

    Args:
        matrix: a, b, c, d, e, f of `geometry.affine`: a rotation of up to 30 degrees, a shear of up
            to 0.3 or neither, and any shift.
        x, y: the position for each pixel [h, w]: of the map, or the nearest whole numbers.

    Reference: Paeth 1986, "A fast algorithm for general raster rotation".
    """
    height, width, _ = image.shape
    radius = WINDOWS[interpolation]
    down, across = radius, radius + int(STEEPEST * (height / 2 + radius)) + 1
    first, second, third = _shears(matrix, height, width)

    # bfloat16 represents every level. Beyond the border the pixels of the border are repeated.
    canvas = jnp.pad(image.astype(jnp.bfloat16), ((down,) * 2, (across,) * 2, (0, 0)), mode="edge")
    rows = jnp.arange(-down, height + down)[:, None]
    columns = jnp.arange(-across, width + across)[None, :]
    canvas = _rolled(canvas, first(rows), 1)
    canvas = _rolled(canvas, second(columns), 0)
    canvas = _rolled(canvas, third(rows), 1)[:, across - radius : width + across + radius]

    # The pixel of the image at each place of the canvas, from the same whole numbers.
    columns = columns[:, across - radius : width + across + radius] + third(rows)
    source_rows = rows + second(columns)
    source_columns = columns + first(source_rows)

    def summed(weight: Callable[[jax.Array, jax.Array], jax.Array], base: jax.Array) -> jax.Array:
        def line(total: jax.Array, top: jax.Array) -> tuple[jax.Array, None]:
            pixels, xs, ys = (
                jax.lax.dynamic_slice_in_dim(array, top, height)
                for array in (canvas, source_columns, source_rows)
            )
            for left in range(2 * radius + 1):
                at = slice(left, left + width)
                share = weight(x - xs[:, at], y - ys[:, at])
                total += share[..., None] * (pixels[:, at].astype(jnp.float32) - base)
            return total, None

        return jax.lax.scan(line, jnp.zeros_like(image), jnp.arange(2 * radius + 1))[0]

    def nearest(right: jax.Array, below: jax.Array) -> jax.Array:
        # A position halfway belongs to the pixel after it.
        return ((right >= -0.5) & (right < 0.5) & (below >= -0.5) & (below < 0.5)).astype(x.dtype)

    base = summed(nearest, jnp.float32(0))
    if interpolation == "nearest":
        return base
    # Differences from one pixel, so that an area of one color keeps it exactly.
    return base + summed(
        lambda right, below: interpolating(right, cubic, -1.0) * interpolating(below, cubic, -1.0),
        base,
    )


def _shears(matrix: jax.Array, height: int, width: int) -> tuple[Shift, Shift, Shift]:
    """The shifts of rows, of columns and of rows again, in whole pixels: functions of a position.

    For a = e and a e - b d = 1, the matrix is a shear across by b / (1 + a), one down by d and the
    first again.
    """
    a, b, c, d, e, f = matrix
    column, row = (width - 1) / 2, (height - 1) / 2
    # Where the map takes the center from; shears are about the centers.
    right = a * (column + 0.5) + b * (row + 0.5) + c - 0.5
    below = d * (column + 0.5) + e * (row + 0.5) + f - 0.5
    across = b / (1 + a)
    return (
        _line(right - column - across * below, across),
        _line(below - row - d * column, d),
        _line(-across * row, across),
    )


def _line(start: jax.Array, slope: jax.Array) -> Shift:
    """Round start + slope · position, in units of 1/65536: the same wherever it is compiled."""
    fixed_start = jnp.round((start + 0.5) * 65536).astype(jnp.int32)
    fixed_slope = jnp.round(slope * 65536).astype(jnp.int32)
    return lambda position: (fixed_start + fixed_slope * position) >> 16


def _rolled(canvas: jax.Array, shifts: jax.Array, axis: int) -> jax.Array:
    """`canvas[i + shift]` along an axis, around its ends, with one shift per line.

    Shifts are whole numbers [h, 1] for axis 1, [1, w] for axis 0.
    """
    length = canvas.shape[axis]
    shifts = jnp.mod(shifts, length)[..., None]
    for bit in range((length - 1).bit_length()):
        moved = jnp.roll(canvas, -(1 << bit), axis)
        canvas = jnp.where((shifts >> bit) & 1 == 1, moved, canvas)
    return canvas


def interpolating(distance: jax.Array, cubic: jax.Array | bool, a: float) -> jax.Array:
    """Return the linear kernel max(0, 1 - |x|), or Keys' cubic with slope a at 1.

    |x| < 1: (a + 2) |x|³ - (a + 3) |x|² + 1; |x| < 2: a (|x|³ - 5 |x|² + 8 |x| - 4)

    Reference: Keys 1981, "Cubic convolution interpolation for digital image processing".
    """
    x = jnp.abs(distance)
    linear = jnp.maximum(1 - x, 0)
    if cubic is False:
        return linear
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return jnp.where(cubic, jnp.where(x < 1, near, jnp.where(x < 2, far, 0)), linear)
