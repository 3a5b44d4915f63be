"""Pillow's geometric operations on bytes, within two levels: crops, resizing and affine maps.

An image is [h, w, C]. Resampling is in float32 on levels 0..255, whole numbers before and after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from mimetic_jax.data.augment import shears

Number = jax.Array | float

ATTEMPTS = 10
"""Of torchvision's RandomResizedCrop and of timm's RandomErasing."""


def flip(key: jax.Array, image: jax.Array) -> jax.Array:
    """Mirror left and right with probability 1/2."""
    return jnp.where(jax.random.bernoulli(key), image[:, ::-1], image)


def pad_crop(key: jax.Array, image: jax.Array, padding: int) -> jax.Array:
    """Draw a random window of the image's own size, after padding with black on each side."""
    padded = jnp.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    top, left = jax.random.randint(key, (2,), 0, 2 * padding + 1)
    # Under vmap a slice is faster than a gather by row and column, or a sum over offsets.
    return jax.lax.dynamic_slice(padded, (top, left, 0), image.shape)


def rectangles(
    key: jax.Array, pixels: int, area: tuple[float, ...], ratio: tuple[float, ...]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sides of ten rectangles, int32 [10] each, and a place in [0, 1) for one of them, [2].

    A ~ U(area) · pixels,  log r ~ U(log ratio),  sides √(A r) and √(A / r), rounded
    """
    # One call, since each is slow to compile: the attempts, and in the last column the place.
    drawn = jax.random.uniform(key, (2, ATTEMPTS + 1))
    areas = pixels * (area[0] + (area[1] - area[0]) * drawn[0, :-1])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    ratios = jnp.exp(low + (high - low) * drawn[1, :-1])
    one = jnp.round(jnp.sqrt(areas * ratios)).astype(jnp.int32)
    other = jnp.round(jnp.sqrt(areas / ratios)).astype(jnp.int32)
    return one, other, drawn[:, -1]


def inside(
    height: int, width: int, top: Number, left: Number, tall: Number, wide: Number
) -> jax.Array:
    """Mask of the pixels inside a rectangle, [h, w, 1]."""
    rows, columns = jnp.arange(height)[:, None, None], jnp.arange(width)[None, :, None]
    return (rows >= top) & (rows < top + tall) & (columns >= left) & (columns < left + wide)


def device_crop(
    key: jax.Array,
    height: int,
    width: int,
    scale: tuple[float, ...],
    ratio: tuple[float, ...],
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Draw top, left, height and width of the box of torchvision's `RandomResizedCrop`, int32 [].

    Ten draws of area ~ U(scale) · h · w and log(w' / h') ~ U(log ratio); the first box that fits
    is put at a uniform position. If none fits, the largest central box with a ratio in range.

    Reference: Szegedy et al. 2015, "Going deeper with convolutions";
    torchvision/transforms/transforms.py.
    """
    widths, heights, place = rectangles(key, height * width, scale, ratio)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)

    first, found = jnp.argmax(fits), fits.any()
    central_width = min(width, max(1, round(height * ratio[1])))
    central_height = min(height, max(1, round(width / ratio[0])))
    box_width = jnp.where(found, widths[first], central_width)
    box_height = jnp.where(found, heights[first], central_height)
    most = jnp.stack([height - box_height, width - box_width])
    corner = jnp.floor(place * (most + 1)).astype(jnp.int32)
    top, left = jnp.where(found, corner, most // 2)
    return top, left, box_height, box_width


_RATIO = (3 / 4, 4 / 3)
"""Of a box's width to its height, the least and the most: torchvision's."""


def resized_crop(
    key: jax.Array,
    image: jax.Array,
    size: tuple[int, ...],
    scale: tuple[float, ...],
    interpolation: str,
) -> jax.Array:
    """Resize a box of random area, shape and position: torchvision's `RandomResizedCrop`.

    Pillow's `crop(box).resize(size)` with its antialiasing, within two levels: pixels outside the
    box have no influence. Levels are of any dtype, which the result has too.
    """
    box_key, interpolation_key = jax.random.split(key)
    full_height, full_width, _ = image.shape
    top, left, height, width = device_crop(box_key, full_height, full_width, scale, _RATIO)
    cubic = _is_cubic(interpolation, interpolation_key)
    rows = _weights(size[0], full_height, top, height, cubic)
    columns = _weights(size[1], full_width, left, width, cubic)
    return _resample(image, rows, columns)


def resize(
    key: jax.Array, image: jax.Array, size: tuple[int, ...], interpolation: str = "bilinear"
) -> jax.Array:
    """Resize a whole image as `resized_crop` resizes its box."""
    height, width, _ = image.shape
    cubic = _is_cubic(interpolation, key)
    rows = _weights(size[0], height, 0, height, cubic)
    columns = _weights(size[1], width, 0, width, cubic)
    return _resample(image, rows, columns)


def central_view(images: jax.Array, size: int, fraction: float) -> jax.Array:
    """Return the view [..., s, s, C] for evaluation: the center of images resized to ⌊s /
    fraction⌋.

    The pixels of torchvision's Resize of the shorter side, bicubic, and CenterCrop on Pillow's
    images, within two levels: the last digit of a float32 may decide a rounding. A fraction of
    0.875 is 224 of 256.
    """
    height, width = images.shape[-3:-1]
    shorter = math.floor(size / fraction)
    views = []
    for side in (height, width):
        resized = int(shorter * side / min(height, width))
        start = round((resized - size) / 2)
        # Compute only the rows and columns in the view.
        views.append(_weights(resized, side, 0, side, True)[start : start + size])
    return _resample(images, *views)


def identity() -> jax.Array:
    """Return the matrix that keeps every pixel in place, for `affine`."""
    return _matrix(1, 0, 0, 0, 1, 0)


def _rotated(degrees: Number, height: int, width: int) -> jax.Array:
    angle = -jnp.deg2rad(jnp.asarray(degrees, jnp.float32))
    cos, sin, x, y = jnp.cos(angle), jnp.sin(angle), width / 2, height / 2
    return _matrix(cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y)


MATRICES: Mapping[str, Callable[[Number, int, int], jax.Array]] = {
    "shear_x": lambda factor, height, width: _matrix(1, factor, 0, 0, 1, 0),
    "shear_y": lambda factor, height, width: _matrix(1, 0, 0, factor, 1, 0),
    "translate_x": lambda pixels, height, width: _matrix(1, 0, pixels, 0, 1, 0),
    "translate_y": lambda pixels, height, width: _matrix(1, 0, 0, 0, 1, pixels),
    "rotate": _rotated,
}
"""Matrices for `affine`, of an argument, h and w: shears shift rows by factor · y or columns by
factor · x, translations shift the image to the left or up, and `rotate` turns it counterclockwise
about its center by degrees, as `Image.rotate`."""


def affine(
    image: jax.Array,
    matrix: jax.Array,
    interpolation: str,
    fill: jax.Array | float,
    key: jax.Array,
) -> jax.Array:
    """Take each pixel (x, y) from (ax + by + c, dx + ey + f), as `Image.transform`.

    Coordinates start at the image's corner: the center of the first pixel is (1/2, 1/2).

    Args:
        image: float32 [h, w, C].
        matrix: a, b, c, d, e, f: float32 [6].
        interpolation: "nearest", "bilinear", "bicubic" (steeper than that of `resize`: Keys'
            constant is −1 here) or "random" for one of the latter two.
        fill: level for pixels from outside the image: a number, or C numbers.
        key: draws a random interpolation.

    Reference: Pillow's Geometry.c.
    """
    height, width, channels = image.shape
    if interpolation == "nearest":
        x, y = _fixed_point(matrix, height, width)
        cubic: jax.Array | bool = False
    else:
        rows, columns = jnp.arange(height)[:, None] + 0.5, jnp.arange(width) + 0.5
        x = matrix[0] * columns + matrix[1] * rows + matrix[2]
        y = matrix[3] * columns + matrix[4] * rows + matrix[5]
        cubic = _is_cubic(interpolation, key)
    fill = jnp.broadcast_to(jnp.asarray(fill, image.dtype), (channels,))

    def by_gathers() -> jax.Array:
        return _gathered(image, x, y, fill, interpolation, cubic)

    def by_shears() -> jax.Array:
        half = 0 if interpolation == "nearest" else 0.5
        levels = shears.sampled(image, matrix, x - half, y - half, interpolation, cubic)
        return jnp.where(_inside(x, y, height, width)[..., None], levels, fill)

    levels = jax.lax.platform_dependent(tpu=by_shears, default=by_gathers)
    return levels if interpolation == "nearest" else jnp.floor(jnp.clip(levels, 0, 255))


def _inside(x: jax.Array, y: jax.Array, height: int, width: int) -> jax.Array:
    return (x >= 0) & (x < width) & (y >= 0) & (y < height)


def _gathered(
    image: jax.Array,
    x: jax.Array,
    y: jax.Array,
    fill: jax.Array,
    interpolation: str,
    cubic: jax.Array | bool,
) -> jax.Array:
    height, width, channels = image.shape
    inside = _inside(x, y, height, width)
    # The fill is one more pixel, because masking it in later costs as much as the look-up.
    # Levels are whole: bytes are a quarter of what look-ups read.
    pixels = jnp.concatenate([image.reshape(-1, channels), fill[None]]).astype(jnp.uint8)

    def take(row: jax.Array, column: jax.Array) -> jax.Array:
        index = jnp.clip(row, 0, height - 1) * width + jnp.clip(column, 0, width - 1)
        index = jnp.where(inside, index, height * width)
        return pixels.at[index].get(mode="promise_in_bounds").astype(image.dtype)

    if interpolation == "nearest":
        return take(y, x)
    left, top = jnp.floor(x - 0.5), jnp.floor(y - 0.5)
    dx, dy = (x - 0.5 - left)[..., None], (y - 0.5 - top)[..., None]
    column, row = left.astype(jnp.int32), top.astype(jnp.int32)
    # The cubic uses one pixel more on each side than the linear.
    taps = range(0, 2) if cubic is False else range(-1, 3)

    def line(down: jax.Array) -> jax.Array:
        return _interpolate([take(row + down, column + right) for right in taps], dx, cubic)

    # A loop over lines of taps: unrolled, XLA would recompute all of them for every use.
    lines = jax.lax.map(line, jnp.array(taps))
    return _interpolate(lines, dy, cubic)


def _matrix(*entries: jax.Array | float) -> jax.Array:
    return jnp.stack([jnp.asarray(entry, jnp.float32) for entry in entries])


def _fixed_point(matrix: jax.Array, height: int, width: int) -> tuple[jax.Array, jax.Array]:
    """The source pixel of each pixel, int32 [h, w] each, summed in units of 1/65536 pixel."""

    def fixed(number: jax.Array) -> jax.Array:
        whole = jnp.floor(number)
        # Separately, because float32 hasn't enough digits for both.
        rest = jnp.floor((number - whole) * 65536 + 0.5)
        return whole.astype(jnp.int32) * 65536 + rest.astype(jnp.int32)

    a, b, c, d, e, f = matrix
    rows, columns = jnp.arange(height)[:, None], jnp.arange(width)
    x = fixed(c + a / 2 + b / 2) + fixed(a) * columns + fixed(b) * rows
    y = fixed(f + d / 2 + e / 2) + fixed(d) * columns + fixed(e) * rows
    return x >> 16, y >> 16


def _interpolate(values: list[jax.Array], part: jax.Array, cubic: jax.Array | bool) -> jax.Array:
    """Interpolate between the middle two of four values, or between two, in Pillow's order."""
    if cubic is False:
        return values[0] + (values[1] - values[0]) * part
    first, second, third, fourth = values
    slope = third - jnp.where(cubic, first, second)
    bend = jnp.where(cubic, 2 * (first - second) + third - fourth, 0)
    twist = jnp.where(cubic, -first + second - third + fourth, 0)
    return second + part * (slope + part * (bend + part * twist))


def _is_cubic(interpolation: str, key: jax.Array) -> jax.Array | bool:
    """Whether the interpolation is bicubic: static, unless the key draws it."""
    if interpolation == "random":
        return jax.random.bernoulli(key)
    return interpolation == "bicubic"


def _weights(
    size: int,
    full: int,
    start: jax.Array | int,
    length: jax.Array | int,
    cubic: jax.Array | bool,
) -> jax.Array:
    """Weights [size, full] that resize the part start .. start + length of a side; rows sum to 1.

    Pillow's filters, stretched if the side shrinks.
    """
    pixel = jnp.arange(full) - start
    # Twice the distance of centers, times size: a whole number, hence exact.
    distance = (2 * pixel + 1) * size - (2 * jnp.arange(size)[:, None] + 1) * length
    # Pillow's cubic is flatter here than that of `affine`.
    weights = shears.interpolating(distance / (2 * jnp.maximum(length, size)), cubic, -0.5)
    weights = jnp.where((pixel >= 0) & (pixel < length), weights, 0)
    return weights / weights.sum(axis=1, keepdims=True)


def _resample(images: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
    """Resample the width, then the height, rounding to levels after each, as Pillow does."""
    # Lower precision than float32, the default on accelerators, would be off by whole levels.
    exact = jax.lax.Precision.HIGHEST
    levels = images.astype(jnp.float32)
    levels = _to_levels(jnp.einsum("ow,...hwc->...hoc", columns, levels, precision=exact))
    levels = _to_levels(jnp.einsum("oh,...hwc->...owc", rows, levels, precision=exact))
    return levels.astype(images.dtype)


def _to_levels(values: jax.Array) -> jax.Array:
    return jnp.clip(jnp.floor(values + 0.5), 0, 255)
