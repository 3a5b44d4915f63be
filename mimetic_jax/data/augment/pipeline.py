"""Augmentation on the device: a batch of a step, each example by its own key, then mixed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, TypeAlias

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import SHARE, Range, check_fields
from mimetic_jax.data.augment import erasing, geometry, policy
from mimetic_jax.data.augment.mixing import Mixing, mix

PIXELS = Range(0, 2**14)
"""Of a side, or none."""

_Pixels: TypeAlias = Annotated[int, PIXELS]

# Folded into an example's key: what one operation draws depends on no other.
_CROP, _FLIP, _RESIZE, _RANDAUGMENT, _ERASE = 0, 1, 3, 4, 6


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """The operations on a training image, in this order:

    resize or crop, flip, RandAugment, normalize, erase; with `randaugment_first` RandAugment before
    crop and flip, and with `erase_mixed` erasing last, after
    the batch is mixed.

    Args:
        crop: pixels of black padding around the image before a random window of its size is cut.
        flip: mirror left and right with probability 1/2.
        size: height and width of the result; 0 for those of the image. Without `crop_scale` the
          whole image is resized, before `crop`.
        crop_scale: least and greatest area of a random resized crop, as parts of the image's, of
          sides 3:4 to 4:3; empty for none. It excludes `crop`.
        interpolation: that of resizing and, as in timm, of timm's RandAugment: "bilinear",
          "bicubic", or "random" for either.
        randaugment: a policy as `policy.parse_policy` reads it, such as "torchvision-n2-m9",
          "rand-m9-mstd0.5-inc1" or "kentaroy-n2-m14"; empty for none.
        randaugment_first: apply it before crop and flip, as kentaroy47's program does, so that
          the black border of the crop is neither moved nor changed in color. It excludes
          `crop_scale`.
        erase: probability of erasing a random rectangle (Zhong et al. 2017).
        erase_mode: "pixel" fills that rectangle with normal noise, "const" with the mean color.
        erase_mixed: erase images after mixup and CutMix, as timm's loader does, so that a hole is
          whole and in one image; otherwise before, as in DeiT, so that holes are mixed too.
    """

    crop: _Pixels = 0
    flip: bool = False
    size: _Pixels = 0
    crop_scale: Annotated[tuple[float, ...], Range(0, 1, above=True)] = ()
    interpolation: Literal["bilinear", "bicubic", "random"] = "bilinear"
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
        if (ends := self.crop_scale) and (len(ends) != 2 or ends[0] > ends[1]):
            raise InputError(f"crop_scale {ends} isn't (least, greatest)")
        if self.randaugment:
            policy.parse_policy(self.randaugment)


def augment_batch(
    augmentation: Augmentation,
    mixing: Mixing,
    key: jax.Array,
    step: jax.Array | int,
    images: jax.Array,
    labels: jax.Array,
    mean: Sequence[float],
    std: Sequence[float],
    num_classes: int,
    smoothing: float = 0.0,
    over_devices: Callable[[Callable[..., jax.Array]], Callable[..., jax.Array]] = lambda one: one,
) -> tuple[jax.Array, jax.Array]:
    """Augment the batch of a step by a key per example, normalize and mix it.

    The key is that of all steps. By `over_devices` each device augments its own images, by a
    function of (keys, images). Targets are [B, classes].

    Reference for images that are erased after they are mixed: timm/data/loader.py, whose collate
    function mixes, then `PrefetchLoader` normalizes and erases.
    """
    keys = example_keys(key, step, len(labels))
    augment = functools.partial(augment_images, augmentation, mean=mean, std=std)
    images = over_devices(augment)(keys, images)
    # Where `example_keys` has the step there is a number that no step reaches.
    mix_key = jax.random.fold_in(jax.random.fold_in(key, 2**32 - 1), step)
    images, targets = mix(mixing, mix_key, images, labels, num_classes, smoothing)
    if augmentation.erase_mixed:  # each image draws what it would have drawn before
        images = jax.vmap(functools.partial(_erased, augmentation))(keys, images)
    return images, targets


def example_keys(key: jax.Array, step: jax.Array | int, batch: int) -> jax.Array:
    """Return one key per example of a step, [B]: `fold_in(fold_in(key, step), i)`."""
    step_key = jax.random.fold_in(key, step)
    return jax.vmap(lambda index: jax.random.fold_in(step_key, index))(jnp.arange(batch))


def normalize(images: jax.Array, mean: Sequence[float], std: Sequence[float]) -> jax.Array:
    """Compute `(images / 255 - mean) / std` by channel, of uint8 [..., h, w, C]; white is 1."""
    scaled = images.astype(jnp.float32) / 255
    return (scaled - jnp.asarray(mean, jnp.float32)) / jnp.asarray(std, jnp.float32)


def augment_images(
    augmentation: Augmentation,
    keys: jax.Array,
    images: jax.Array,
    mean: Sequence[float],
    std: Sequence[float],
) -> jax.Array:
    """Augment and normalize a batch, uint8 [B, h, w, C]; each example depends on its own key alone.

    Operations run in the order of `Augmentation`; erasing mixed images is left to `augment_batch`.
    What one operation draws depends neither on their order nor on which others are switched on.
    Images are gray (C = 1) or color (C = 3) if colors change.
    """

    def augment_one(key: jax.Array, image: jax.Array) -> jax.Array:
        def own(number: int) -> jax.Array:
            return jax.random.fold_in(key, number)

        def policed(image: jax.Array) -> jax.Array:
            parsed = policy.parse_policy(augmentation.randaugment)
            levels, drawn = image.astype(jnp.float32), own(_RANDAUGMENT)
            return policy.rand_augment(parsed, drawn, levels, mean, augmentation.interpolation)

        image = _resized(augmentation, own(_RESIZE), image)
        if augmentation.randaugment and augmentation.randaugment_first:
            image = policed(image)
        if augmentation.crop:
            image = geometry.pad_crop(own(_CROP), image, augmentation.crop)
        if augmentation.flip:
            image = geometry.flip(own(_FLIP), image)
        if augmentation.randaugment and not augmentation.randaugment_first:
            image = policed(image)
        image = normalize(image.astype(jnp.uint8), mean, std)
        if not augmentation.erase_mixed:
            image = _erased(augmentation, key, image)
        return image

    return jax.vmap(augment_one)(keys, images)


def _resized(augmentation: Augmentation, key: jax.Array, image: jax.Array) -> jax.Array:
    full = image.shape[:2]
    size = (augmentation.size, augmentation.size) if augmentation.size else full
    if augmentation.crop_scale:
        scale, how = augmentation.crop_scale, augmentation.interpolation
        return geometry.resized_crop(key, image, size, scale, interpolation=how)
    return image if size == full else geometry.resize(key, image, size, augmentation.interpolation)


def _erased(augmentation: Augmentation, key: jax.Array, image: jax.Array) -> jax.Array:
    if not augmentation.erase:
        return image
    own = jax.random.fold_in(key, _ERASE)
    return erasing.random_erasing(own, image, augmentation.erase, augmentation.erase_mode)
