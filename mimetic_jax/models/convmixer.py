"""The ConvMixer: depthwise convolutions mix pixels, pointwise ones mix channels."""

from __future__ import annotations

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.models.depthwise import Depthwise
from mimetic_jax.models.init import base_init
from mimetic_jax.models.layers import by_example, classify, patch_embed, patch_grid, stack
from mimetic_jax.models.low_memory import gelu
from mimetic_jax.models.traits import Traits


class ConvMixer(nn.Module):
    """A ConvMixer on images [B, h, w, C] of any size that `patch` divides.

    Batch normalization has running statistics in the collection "batch_stats", which calls with
    `train=True` update: r ← 0.9 r + 0.1 s, s the mean or the variance over the whole batch and all
    pixels. The variance is divided by their number n as everywhere in Flax. PyTorch normalizes by
    the same one but keeps n / (n − 1) times it: with 512 images of 16x16 patches its running
    variances are 1 + 8e-6 times ours.

    The initialization that schemes start from is PyTorch's default, in every layer.

    Attributes:
        num_classes: width of the logits.
        width: D, of the activations.
        depth: L, the number of blocks.
        patch: side of a square patch in pixels.
        filter_size: side of the depthwise filters.
        scan: one loop over a block, see `ViT`.
        remat: recompute each block in the backward pass, see `ViT`.
        dtype: the dtype of the computation; parameters, statistics and logits stay float32.

    Example:
        >>> model = ConvMixer(num_classes=10, width=16, depth=2)
        >>> variables = jax.eval_shape(model.init, jax.random.key(0), jnp.ones((1, 8, 8, 3)))
        >>> variables["params"]["block_0"]["depthwise"]["kernel"].shape
        (5, 5, 1, 16)

    Reference: Patches Are All You Need?; the form of kentaroy47's models/convmixer.py, which the
    structured paper trains (appendix H, with depth 8 and patches of 2).
    """

    num_classes: int
    width: int = 256
    depth: int = 8
    patch: int = 2
    filter_size: int = 5
    scan: bool = False
    remat: bool = False
    dtype: Any = jnp.float32

    traits: ClassVar[Traits] = Traits(grid=patch_grid)

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Logits [B, classes], float32. Training changes the collection "batch_stats"."""
        init = base_init("torch")
        x = patch_embed(images, self.patch, self.width, init.linear, init.linear_bias, self.dtype)
        x = _norm("patch_norm", train, self.dtype)(gelu(x))
        x = stack(Block, self, x, train=train)
        return classify(x.mean(axis=(1, 2)), self.num_classes, init)


class Block(nn.Module):
    """x + norm(gelu(depthwise(x))), then norm(gelu(pointwise(x)))."""

    filter_size: int
    train: bool
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
        """Activations [B, h, w, D] and nothing: the form of a scan's body."""
        width, init = x.shape[-1], base_init("torch")
        size, dtype = self.filter_size, self.dtype
        depthwise = Depthwise(size, **init.of(size**2), dtype=dtype, name="depthwise")
        x += _norm("norm1", self.train, dtype)(gelu(depthwise(x)))
        pointwise = nn.Dense(width, **init.of(width), dtype=dtype, name="pointwise")
        return by_example(_norm("norm2", self.train, dtype)(gelu(pointwise(x)))), None


def _norm(name: str, train: bool, dtype: Any) -> nn.BatchNorm:
    return nn.BatchNorm(
        use_running_average=not train, momentum=0.9, epsilon=1e-5, dtype=dtype, name=name
    )
