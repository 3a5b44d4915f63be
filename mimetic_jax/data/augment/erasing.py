"""Holes in images: random erasing, and the cutout of a RandAugment."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from mimetic_jax.data.augment.geometry import Number, inside, rectangles

Fill = Literal["const", "pixel"]

# Range of the part of the image's area, range of height / width, and number of attempts.
AREA = (0.02, 1 / 3)
ASPECT = (0.3, 1 / 0.3)

# Levels that kentaroy47's cutout paints, near the mean of ImageNet.
GRAY = (125, 123, 114)


def cutout_in_levels(key: jax.Array, image: jax.Array, side: Number) -> jax.Array:
    """Paint a gray square on levels [h, w, 3], as kentaroy47's `CutoutAbs`.

    The corner of the square is ⌊max(0, c - side / 2)⌋ in each direction, with a center c uniform
    over (1, h] or (1, w]. The square has ⌊side⌋ + 1 pixels, because Pillow's rectangle includes its
    last pixel, and only the right and the bottom border clip it. The side may be traced.

    Reference: randomaug.py in kentaroy47/vision-transformers-cifar10.
    """
    height, width, _ = image.shape
    size = jnp.array([height, width])
    # NumPy's uniform(w) is that of the range from w down to 1.
    center = size + (1 - size) * jax.random.uniform(key, (2,))
    top, left = jnp.floor(jnp.maximum(center - side / 2, 0))
    pixels = jnp.floor(side) + 1
    hole = inside(height, width, top, left, pixels, pixels)
    return jnp.where(hole, jnp.asarray(GRAY, image.dtype), image)


def random_erasing(
    key: jax.Array, image: jax.Array, probability: float, mode: Fill = "pixel"
) -> jax.Array:
    """Fill a random rectangle of a normalized image, with some probability.

    Up to ten draws of area ~ U(0.02, 1/3) · h · w and log(h' / w') ~ U(log 0.3, log 1/0.3); the
    first rectangle that is lower and narrower than the image is put at a uniform position. Mode
    "const" fills it with 0, "pixel" with a normal number per pixel and channel.

    Reference: Zhong et al. 2017, "Random erasing data augmentation"; timm/data/random_erasing.py
    with its default of one rectangle.
    """
    height, width, _ = image.shape
    apply_key, draw_key, noise_key = jax.random.split(key, 3)
    heights, widths, place = rectangles(draw_key, height * width, AREA, ASPECT)
    fits = (heights < height) & (widths < width)
    first = jnp.argmax(fits)
    most = jnp.stack([height - heights[first], width - widths[first]])
    top, left = jnp.floor(place * (most + 1)).astype(jnp.int32)

    erased = jax.random.bernoulli(apply_key, probability) & fits.any()
    hole = inside(height, width, top, left, heights[first], widths[first]) & erased
    pixel = mode == "pixel"
    fill = jax.random.normal(noise_key, image.shape, image.dtype) if pixel else 0.0
    return jnp.where(hole, fill, image)
