"""Color operations equal to Pillow's on bytes: levels 0..255 in, levels 0..255 out.

An image is float32 [h, w, C] with C = 3 (Pillow's "RGB") or 1 ("L"). It has whole numbers after
every operation, so that operations chain as on Pillow's images. Operations that depend on the
level alone take levels of any shape, even a ramp of all 256: see `tables.apply_table`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.augment.geometry import inside


def invert(levels: jax.Array) -> jax.Array:
    """Return `255 - level`, as `ImageOps.invert`."""
    return 255 - levels


def posterize(levels: jax.Array, bits: jax.Array | float) -> jax.Array:
    """Keep the highest bits, 0 to 8 of them, of each level, as `ImageOps.posterize`."""
    step = jnp.exp2(8 - jnp.clip(jnp.asarray(bits, jnp.float32), 0, 8))
    return jnp.floor(levels / step) * step


def solarize(levels: jax.Array, threshold: jax.Array | float) -> jax.Array:
    """Invert the levels from the threshold up, as `ImageOps.solarize`."""
    return jnp.where(levels < threshold, levels, 255 - levels)


def solarize_add(levels: jax.Array, add: jax.Array | float) -> jax.Array:
    """Add to the levels below 128, as timm's operation of that name."""
    return jnp.where(levels < 128, jnp.minimum(levels + add, 255), levels)


def add_solarize(levels: jax.Array, add: jax.Array | float) -> jax.Array:
    """Add to every level, then invert those from 128 up, as kentaroy47's `SolarizeAdd`."""
    return solarize(jnp.floor(jnp.minimum(levels + add, 255)), 128)


def brightness(levels: jax.Array, factor: jax.Array | float) -> jax.Array:
    """Scale away from black (factor above 1) or toward it, as `ImageEnhance.Brightness`."""
    return blend(jnp.zeros_like(levels), levels, factor)


def grayscale(image: jax.Array) -> jax.Array:
    """Set every channel to the luma ⌊(19595 R + 38470 G + 7471 B) / 65536 + 1/2⌋, as Pillow."""
    if image.shape[-1] not in (1, 3):
        raise InputError(f"{image.shape[-1]} channels are neither gray (1) nor color (3)")
    if image.shape[-1] == 1:
        return image
    # These sums are below 2^24, up to which float32 represents every whole number.
    luma = image[..., 0] * 19595 + image[..., 1] * 38470 + image[..., 2] * 7471
    luma = jnp.floor((luma + 32768) / 65536)
    return jnp.broadcast_to(luma[..., None], image.shape)


def mean_gray(image: jax.Array) -> jax.Array:
    """Average the luma of at most four million pixels, as `ImageEnhance.Contrast` does."""
    gray = grayscale(image)[..., 0].astype(jnp.int32)
    return ((2 * gray.sum() + gray.size) // (2 * gray.size)).astype(jnp.float32)


def smooth(image: jax.Array) -> jax.Array:
    """Take a 3×3 mean with weight 5 at the center, as `ImageFilter.SMOOTH`.

    The outermost pixels are unchanged.
    """
    height, width, _ = image.shape
    around = jnp.pad(image, ((1, 1), (1, 1), (0, 0)))
    around = around[:-2] + around[1:-1] + around[2:]
    around = around[:, :-2] + around[:, 1:-1] + around[:, 2:]
    inner = inside(height, width, 1, 1, height - 2, width - 2)
    return jnp.where(inner, jnp.floor((around + 4 * image) / 13 + 0.5), image)


def blend(start: jax.Array, end: jax.Array, factor: jax.Array | float) -> jax.Array:
    """Return `start + factor · (end - start)`, truncated and clipped as `Image.blend` does."""
    return jnp.floor(jnp.clip(start + factor * (end - start), 0, 255))
