"""The isotropic ConvNeXt: a depthwise convolution and an MLP in one residual branch."""

from __future__ import annotations

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.models.depthwise import Depthwise
from mimetic_jax.models.init import base_init
from mimetic_jax.models.layers import MLP, by_example, classify, patch_embed, patch_grid, stack
from mimetic_jax.models.low_memory import LayerNorm
from mimetic_jax.models.traits import TRANSFORMER_SHARDING, Traits


class ConvNeXt(nn.Module):
    """An isotropic ConvNeXt on images [B, h, w, C] of any size that `patch` divides.

    It has one resolution, no norm after the patches, and neither LayerScale nor drop-path.

    Attributes:
        num_classes: width of the logits.
        width: D, of the activations.
        depth: L, the number of blocks.
        patch: side of a square patch in pixels.
        filter_size: side of the depthwise filters.
        mlp_ratio: F / D, how much wider the hidden layer of an MLP is.
        learn_sum: add c · Σ_d x_d to the hidden units of each MLP, c learned from 0 on. Behind a
            fresh LayerNorm the sum is 0, and so is the gradient of c until the norm has learned.
        base: the initialization that schemes start from: "torch", which the paper on MLPs takes;
            "timm", a normal of 0.02 with zero biases in every layer, ConvNeXt's own; or "flax".
        scan: one loop over a block, see `ViT`.
        remat: recompute each block in the backward pass, see `ViT`.
        dtype: the dtype of the computation; parameters and logits stay float32.

    Example:
        >>> model = ConvNeXt(num_classes=10, width=16, depth=2)
        >>> params = jax.eval_shape(model.init, jax.random.key(0), jnp.ones((1, 8, 8, 3)))["params"]
        >>> params["block_1"]["mlp"]["fc1"]["kernel"].shape
        (16, 64)

    Reference: A ConvNet for the 2020s, its isotropic form (table 2); sizes of Mimetic
    Initialization of MLPs, section 3.
    """

    num_classes: int
    width: int = 256
    depth: int = 8
    patch: int = 2
    filter_size: int = 7
    mlp_ratio: float = 4.0
    learn_sum: bool = False
    base: str = "torch"
    scan: bool = False
    remat: bool = False
    dtype: Any = jnp.float32

    traits: ClassVar[Traits] = Traits(grid=patch_grid, sharding=TRANSFORMER_SHARDING)

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits [B, classes], float32."""
        init = base_init(self.base)
        x = patch_embed(images, self.patch, self.width, init.linear, init.linear_bias, self.dtype)
        x = stack(Block, self, x)
        x = LayerNorm(epsilon=1e-6, dtype=self.dtype, name="norm")(x.mean(axis=(1, 2)))
        return classify(x, self.num_classes, init)


class Block(nn.Module):
    """x + mlp(norm(depthwise(x)))."""

    filter_size: int
    mlp_ratio: float
    learn_sum: bool
    base: str
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
        """Activations [B, h, w, D] and nothing: the form of a scan's body."""
        init, size = base_init(self.base), self.filter_size
        depthwise = Depthwise(size, **init.of(size**2), dtype=self.dtype, name="depthwise")
        y = LayerNorm(epsilon=1e-6, dtype=self.dtype, name="norm")(depthwise(x))
        mlp = MLP(self.mlp_ratio, self.base, self.dtype, self.learn_sum, name="mlp")
        return by_example(x + mlp(y)), None
