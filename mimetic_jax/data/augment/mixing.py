"""Mixup and CutMix: a batch blended with itself in reverse, images and targets alike."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp

from mimetic_jax.base.typed import Range, check_fields
from mimetic_jax.data.augment.geometry import inside

ALPHA = Range(0, 1000)  # beyond that, λ is 1/2


@dataclasses.dataclass(frozen=True)
class Mixing:
    """How a batch is mixed; nothing by default.

    Args:
        mixup: α of Beta(α, α), the distribution of the share λ that an image keeps; 0 for no mixup.
        cutmix: α of Beta(α, α), that of the share of its area that an image keeps; 0 for no CutMix.

    With both, each batch has one of them with probability 1/2.

    Reference: Zhang et al. 2017, "mixup"; Yun et al. 2019, "CutMix"; the fields are those of timm.
    """

    mixup: Annotated[float, ALPHA] = 0.0
    cutmix: Annotated[float, ALPHA] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)


def mix(
    mixing: Mixing,
    key: jax.Array,
    images: jax.Array,
    labels: jax.Array,
    num_classes: int,
    smoothing: float = 0.0,
) -> tuple[jax.Array, jax.Array]:
    """Mix a batch with itself in reverse, and make the targets.

    images: λ x + (1 - λ) x[::-1], or x with a box of x[::-1]
    targets: λ t + (1 - λ) t[::-1] with t = (1 - s) onehot + s / classes

    There is one λ and one box per batch, on however many devices it is. PyTorch's programs draw
    them per process, each for its part of the batch: timm's train.py in the structured paper's
    command for 64 images of 1024, DeiT for 256. timm's collate function mixes levels and rounds
    them, here they aren't rounded. The box has sides ⌊√(1 - λ) · (h, w)⌋ about a uniform
    center; if the border clips it, λ becomes the true share.

    Reference: timm/data/mixup.py, class Mixup in batch mode.
    """
    one_hot = jax.nn.one_hot(labels, num_classes, dtype=jnp.float32)
    targets = (1 - smoothing) * one_hot + smoothing / num_classes
    if not (mixing.mixup or mixing.cutmix):
        return images, targets
    cut, share, box = _draw(mixing, key, *images.shape[1:3])
    weight = share.astype(images.dtype)
    blended = weight * images + (1 - weight) * images[::-1]
    pasted = jnp.where(box, images[::-1], images)
    mixed = jnp.where(cut, pasted, blended)
    return mixed, share * targets + (1 - share) * targets[::-1]


def _draw(
    mixing: Mixing, key: jax.Array, height: int, width: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Whether to use CutMix, λ, and the mask of the box [h, w, 1]."""
    uniform_key, share_key = jax.random.split(key)
    uniform = jax.random.uniform(uniform_key, (4,))
    both = mixing.mixup and mixing.cutmix
    cut = uniform[0] < (0.5 if both else float(mixing.cutmix > 0))
    alpha = jnp.where(cut, mixing.cutmix, mixing.mixup)
    share = jax.random.beta(share_key, alpha, alpha)

    size = jnp.array([height, width])
    # A share of 1 gives an empty box.
    side = jnp.floor(size * jnp.sqrt(1 - share)).astype(jnp.int32)
    center = jnp.floor(uniform[2:] * size).astype(jnp.int32)
    start, end = jnp.clip(center - side // 2, 0, size), jnp.clip(center + side // 2, 0, size)
    kept = 1 - jnp.prod(end - start) / (height * width)
    return cut, jnp.where(cut, kept, share), inside(height, width, *start, *(end - start))
