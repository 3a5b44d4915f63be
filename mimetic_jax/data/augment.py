"""Random crop, flip and cutout on the device: one key per example, and nothing else, decides."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from mimetic_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What is done to a training image, in this order: crop, flip, normalise, cutout.

    Args:
        crop: pixels of black put around the image before a random window of its size is taken.
        flip: mirror left and right with probability 1/2.
        cutout: side of a square set to the mean colour. Its centre is uniform over the image and it
          is clipped at the border (DeVries & Taylor 2017).

    Raises:
        InputError: a size is below 0.
    """

    crop: int = 0
    flip: bool = False
    cutout: int = 0

    def __post_init__(self) -> None:
        if self.crop < 0 or self.cutout < 0:
            raise InputError(f"crop {self.crop} and cutout {self.cutout} must both be at least 0")


def example_keys(key: jax.Array, step: jax.Array | int, batch: int) -> jax.Array:
    """One key per example of a step: `fold_in(fold_in(key, step), i)`.

    Args:
        key: the key of the augmentation.
        step: may be traced.
        batch: B, static.

    Returns:
        keys [B], of the kind of `key`.
    """
    step_key = jax.random.fold_in(key, step)
    return jax.vmap(lambda index: jax.random.fold_in(step_key, index))(jnp.arange(batch))


def normalize(images: jax.Array, mean: Sequence[float], std: Sequence[float]) -> jax.Array:
    """`(images / 255 - mean) / std`, channel by channel.

    Args:
        images: uint8 [..., h, w, C].
        mean: C numbers, in units where white is 1.
        std: C numbers, likewise.

    Returns:
        float32 [..., h, w, C].

    Raises:
        InputError: the images aren't uint8, or their channels aren't C.
    """
    if images.dtype != jnp.uint8:
        raise InputError(f"images are {images.dtype}, expected uint8 from 0 to 255")
    if not len(mean) == len(std) == images.shape[-1]:
        raise InputError(
            f"{len(mean)} means and {len(std)} standard deviations for images of "
            f"{images.shape[-1]} channels"
        )
    scaled = images.astype(jnp.float32) / 255
    return (scaled - jnp.asarray(mean, jnp.float32)) / jnp.asarray(std, jnp.float32)


def augment(
    augmentation: Augmentation,
    keys: jax.Array,
    images: jax.Array,
    mean: Sequence[float],
    std: Sequence[float],
) -> jax.Array:
    """Augments and normalises a batch; each example by its own key alone.

    Switching one operation on or off leaves the draws of the others as they were.

    Args:
        augmentation: what to do; static.
        keys: [B], as `example_keys` makes them.
        images: uint8 [B, h, w, C].
        mean: C numbers, in units where white is 1.
        std: C numbers, likewise.

    Returns:
        float32 [B, h, w, C].

    Raises:
        InputError: the square is larger than the image, or see `normalize`.
    """
    height, width = images.shape[1:3]
    if augmentation.cutout > min(height, width):
        raise InputError(
            f"cutout of side {augmentation.cutout} is larger than the {height}x{width} images"
        )

    def one(key: jax.Array, image: jax.Array) -> jax.Array:
        crop_key, flip_key, cutout_key = jax.random.split(key, 3)
        if augmentation.crop:
            image = _crop(crop_key, image, augmentation.crop)
        if augmentation.flip:
            image = jnp.where(jax.random.bernoulli(flip_key), image[:, ::-1], image)
        normal = normalize(image, mean, std)
        if augmentation.cutout:
            normal = _cutout(cutout_key, normal, augmentation.cutout)
        return normal

    return jax.vmap(one)(keys, images)


def _crop(key: jax.Array, image: jax.Array, padding: int) -> jax.Array:
    padded = jnp.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    top, left = jax.random.randint(key, (2,), 0, 2 * padding + 1)
    # Under vmap a slice beats a gather by row and column, and a sum over offsets by far.
    return jax.lax.dynamic_slice(padded, (top, left, 0), image.shape)


def _cutout(key: jax.Array, image: jax.Array, side: int) -> jax.Array:
    height, width, _ = image.shape
    centre = jax.random.randint(key, (2,), 0, jnp.array([height, width]))
    top, left = centre - side // 2
    rows, columns = jnp.arange(height)[:, None, None], jnp.arange(width)[None, :, None]
    inside = (rows >= top) & (rows < top + side) & (columns >= left) & (columns < left + side)
    return jnp.where(inside, 0.0, image)
