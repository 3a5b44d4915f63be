"""Augmentation on the device: each example depends on its own key alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import SHARE, check_fields
from mimetic_jax.data.augment import erasing, geometry, policy
from mimetic_jax.data.ranges import Interpolation, Pixels, Ratio, Scale, check_range


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """The operations on a training image, in this order:

    resize or crop, flip, RandAugment, normalize, erase, cutout; with
    `randaugment_first` RandAugment before crop and flip, and with `erase_mixed` erasing last, after
    the batch is mixed.

    Args:
        crop: pixels of black padding around the image before a random window of its size is cut.
        flip: mirror left and right with probability 1/2.
        cutout: side of a square set to the mean color. Its center is uniform over the image and it
          is clipped at the border (DeVries & Taylor 2017).
        size: height and width of the result; 0 for those of the image. Without `crop_scale` the
          whole image is resized, before `crop`.
        crop_scale: least and greatest area of a random resized crop, as parts of the image's; empty
          for none. It excludes `crop`.
        crop_ratio: least and greatest width / height of the crop of crop_scale.
        interpolation: of resizing and, as in timm, of timm's RandAugment: "bilinear", "bicubic", or
          "random" for either.
        randaugment: a policy as `policy.parse_policy` reads it, such as "torchvision-n2-m9",
          "rand-m9-mstd0.5-inc1" or "kentaroy-n2-m14"; empty for none.
        randaugment_first: apply it before crop and flip, as kentaroy47's program does, so that
          the black border of the crop is neither moved nor changed in color. It excludes
          `crop_scale`.
        erase: probability of erasing a random rectangle (Zhong et al. 2017).
        erase_mode: "pixel" fills that rectangle with normal noise, "const" with the mean color.
        erase_mixed: erase images after mixup and CutMix, as timm's loader does, so that a hole is
          whole and in one image; otherwise before, as in DeiT, so that holes are mixed too.

    Raises:
        InputError: a number is out of range, a name unknown, or the policy malformed.
    """

    crop: Pixels = 0
    flip: bool = False
    cutout: Pixels = 0
    size: Pixels = 0
    crop_scale: Scale = ()
    crop_ratio: Ratio = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"
    randaugment: str = ""
    randaugment_first: bool = False
    erase: Annotated[float, SHARE] = 0.0
    erase_mode: erasing.Fill = "pixel"
    erase_mixed: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.crop and self.crop_scale:
            raise InputError(f"choose one of crop {self.crop} and crop_scale {self.crop_scale}")
        if self.randaugment_first and self.crop_scale:
            raise InputError(
                f"randaugment_first isn't for a resized crop: crop_scale is {self.crop_scale}"
            )
        if self.crop_scale:
            check_range("crop_scale", self.crop_scale)
        check_range("crop_ratio", self.crop_ratio)
        if self.randaugment:
            policy.parse_policy(self.randaugment)


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
        InputError: the images aren't uint8, or don't have C channels.
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


def augment_images(
    augmentation: Augmentation,
    keys: jax.Array,
    images: jax.Array,
    mean: Sequence[float],
    std: Sequence[float],
) -> jax.Array:
    """Augment and normalize a batch; each example depends on its own key alone.

    Operations run in the order of `Augmentation`; erasing mixed images is left to `erase_mixed`.
    What one operation draws depends neither on their order nor on which others are switched on.

    Args:
        augmentation: the operations; static.
        keys: [B], from `example_keys`.
        images: uint8 [B, h, w, C]; gray (C = 1) or color (C = 3) where colors change.
        mean: C numbers, in units where white is 1.
        std: C numbers, likewise.

    Returns:
        float32 [B, h, w, C], or [B, size, size, C].

    Raises:
        InputError: as `normalize`, or the square of cutout is larger than the image.
    """

    def one(key: jax.Array, image: jax.Array) -> jax.Array:
        def applied(operations: Sequence[Operation], image: jax.Array) -> jax.Array:
            for operation in operations:
                if getattr(augmentation, operation.field):
                    own = jax.random.fold_in(key, operation.number)
                    image = operation.apply(augmentation, own, image, mean)
            return image

        image = _resized(augmentation, jax.random.fold_in(key, 3), image)
        levels = applied(on_pixels, image)
        return applied(on_normalized, normalize(levels.astype(jnp.uint8), mean, std))

    on_pixels: Sequence[Operation] = (CROP, FLIP, RANDAUGMENT)
    if augmentation.randaugment_first:
        on_pixels = (RANDAUGMENT, CROP, FLIP)
    on_normalized = (CUTOUT,) if augmentation.erase_mixed else (ERASE, CUTOUT)
    return jax.vmap(one)(keys, images)


def erase_mixed(augmentation: Augmentation, keys: jax.Array, images: jax.Array) -> jax.Array:
    """Erase from images that are mixed already, where `augmentation.erase_mixed` is set.

    Each image draws what `augment_images` would have drawn for it.

    Args:
        augmentation: `erase`, `erase_mode` and `erase_mixed` of it; static.
        keys: [B], those of `augment_images`.
        images: float [B, h, w, C], normalized.

    Returns:
        [B, h, w, C] of the dtype of `images`.

    Reference: timm/data/loader.py: the loader's collate function mixes, then `PrefetchLoader`
    normalizes and erases.
    """
    if not (augmentation.erase and augmentation.erase_mixed):
        return images

    def one(key: jax.Array, image: jax.Array) -> jax.Array:
        return ERASE.apply(augmentation, jax.random.fold_in(key, ERASE.number), image, ())

    return jax.vmap(one)(keys, images)


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation on one image.

    Attributes:
        field: of `Augmentation`, that switches it on.
        number: folded into the example's key, different for each operation; 3 is the resizing's.
        apply: (augmentation, key, image, channel means) → the image.
    """

    field: str
    number: int
    apply: Callable[[Augmentation, jax.Array, jax.Array, Sequence[float]], jax.Array]


def _resized(augmentation: Augmentation, key: jax.Array, image: jax.Array) -> jax.Array:
    full = image.shape[:2]
    size = (augmentation.size, augmentation.size) if augmentation.size else full
    if augmentation.crop_scale:
        return geometry.resized_crop(
            key,
            image,
            size,
            augmentation.crop_scale,
            augmentation.crop_ratio,
            augmentation.interpolation,
        )
    return image if size == full else geometry.resize(image, size, augmentation.interpolation, key)


def _rand_augment(
    augmentation: Augmentation, key: jax.Array, image: jax.Array, mean: Sequence[float]
) -> jax.Array:
    parsed = policy.parse_policy(augmentation.randaugment)
    levels = image.astype(jnp.float32)
    return policy.rand_augment(parsed, key, levels, mean, augmentation.interpolation)


# On uint8 images [h, w, C], or on float32 levels from 0 to 255, which are rounded at the end.
CROP = Operation("crop", 0, lambda a, key, image, mean: geometry.pad_crop(key, image, a.crop))
FLIP = Operation("flip", 1, lambda a, key, image, mean: geometry.flip(key, image))
RANDAUGMENT = Operation("randaugment", 4, _rand_augment)

# On float32 images [h, w, C] of mean 0 and standard deviation 1.
ERASE = Operation(
    "erase",
    6,
    lambda a, key, image, mean: erasing.random_erasing(key, image, a.erase, a.erase_mode),
)
CUTOUT = Operation("cutout", 2, lambda a, key, image, mean: erasing.cutout(key, image, a.cutout))
