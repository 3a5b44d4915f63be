"""The MLP-Mixer: one MLP mixes tokens, another mixes channels."""

from __future__ import annotations

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.models.init import base_init, torch_bias
from mimetic_jax.models.layers import MLP, by_example, classify, patch_embed, patch_grid, stack
from mimetic_jax.models.low_memory import LayerNorm
from mimetic_jax.models.traits import TRANSFORMER_SHARDING, Traits


class Mixer(nn.Module):
    """An MLP-Mixer on images [B, h, w, C].

    The token-mixing MLP has one row per token, so the parameters fit one size of image only.

    Attributes:
        num_classes: width of the logits.
        width: D, of the activations.
        depth: L, the number of blocks.
        patch: side of a square patch in pixels.
        token_ratio: hidden width of the token-mixing MLP, over the number of tokens N.
        mlp_ratio: hidden width of the channel MLP, over D.
        base: the initialization that schemes start from: "torch", "timm" or "flax".
        scan: one loop over a block, see `ViT`.
        remat: recompute each block in the backward pass, see `ViT`.
        dtype: the dtype of the computation; parameters and logits stay float32.

    Example:
        >>> model = Mixer(num_classes=10, width=16, depth=2)
        >>> images = jnp.ones((1, 16, 16, 3))
        >>> params = jax.eval_shape(model.init, jax.random.key(0), images)["params"]
        >>> params["block_0"]["token_mixing"]["fc1"]["kernel"].shape  # [N, F]
        (16, 64)

    Reference: MLP-Mixer: An all-MLP Architecture for Vision; the form, sizes and ε of kentaroy47's
    models/mlpmixer.py (after lucidrains), which the structured paper trains.
    """

    num_classes: int
    width: int = 512
    depth: int = 6
    patch: int = 4
    token_ratio: float = 4.0
    mlp_ratio: float = 0.5
    base: str = "torch"
    scan: bool = False
    remat: bool = False
    dtype: Any = jnp.float32

    traits: ClassVar[Traits] = Traits(
        grid=patch_grid,
        sharding=(
            (r"token_mixing/fc1/kernel$", ("fsdp?", "tensor")),
            (r"token_mixing/fc1/bias$", ("tensor",)),
            (r"token_mixing/fc2/kernel$", ("tensor", "fsdp?")),
            *TRANSFORMER_SHARDING,
        ),
    )

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits [B, classes], float32."""
        init = base_init(self.base)
        x = patch_embed(images, self.patch, self.width, init.patch, torch_bias, self.dtype)
        x = x.reshape(len(x), -1, self.width)
        x = stack(Block, self, x)
        x = LayerNorm(epsilon=1e-5, dtype=self.dtype, name="norm")(x)
        return classify(x.mean(axis=1), self.num_classes, init)


class Block(nn.Module):
    """x + token_mixing(norm(x)) over tokens, then x + mlp(norm(x)) over channels."""

    token_ratio: float
    mlp_ratio: float
    base: str
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
        """Activations [B, N, D] and nothing: the form of a scan's body."""

        def norm(name: str) -> LayerNorm:
            return LayerNorm(epsilon=1e-5, dtype=self.dtype, name=name)

        token_mixing = MLP(self.token_ratio, self.base, self.dtype, name="token_mixing")
        x += token_mixing(norm("norm1")(x).swapaxes(1, 2)).swapaxes(1, 2)
        mlp = MLP(self.mlp_ratio, self.base, self.dtype, name="mlp")
        return by_example(x + mlp(norm("norm2")(x))), None
