"""Rectangles of random area and shape, of which the first that fits is used."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

ATTEMPTS = 10
"""Of torchvision's RandomResizedCrop and of timm's RandomErasing."""


def rectangles(
    key: jax.Array, pixels: int, area: tuple[float, ...], ratio: tuple[float, ...]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sides of ten rectangles, and a place for one of them.

        A ~ U(area) · pixels,  log r ~ U(log ratio),  sides √(A r) and √(A / r), rounded

    Args:
        key: draws them.
        pixels: h · w, of the image.
        area: least and greatest area, as parts of the image's.
        ratio: least and greatest quotient of the sides.

    Returns:
        The one side and the other, int32 [10] each, and the place, in [0, 1), [2].
    """
    # One call, since each is slow to compile: the attempts, and in the last column the place.
    drawn = jax.random.uniform(key, (2, ATTEMPTS + 1))
    areas = pixels * (area[0] + (area[1] - area[0]) * drawn[0, :-1])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    ratios = jnp.exp(low + (high - low) * drawn[1, :-1])
    one = jnp.round(jnp.sqrt(areas * ratios)).astype(jnp.int32)
    other = jnp.round(jnp.sqrt(areas / ratios)).astype(jnp.int32)
    return one, other, drawn[:, -1]
