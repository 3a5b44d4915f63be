"""The vision transformer: pre-LN, class token or mean pooling, a trainable position table."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.models.attention import Attention
from mimetic_jax.models.init import POSITION, base_init, torch_bias
from mimetic_jax.models.layers import (
    MLP,
    Dropout,
    by_example,
    check_choices,
    check_heads,
    check_rates,
    classify,
    first_token,
    patch_embed,
    patch_grid,
    shared,
    stack,
)
from mimetic_jax.models.low_memory import LayerNorm, add_table
from mimetic_jax.models.traits import TRANSFORMER_SHARDING, Traits
from mimetic_jax.weights.rotary import Rotary

VARIANTS = {
    "Ti": {"width": 192, "depth": 12, "heads": 3},
    "S": {"width": 384, "depth": 12, "heads": 6},
    "B": {"width": 768, "depth": 12, "heads": 12},
}
"""Sizes of DeiT and AugReg, as arguments of `ViT`."""


class ViT(nn.Module):
    """A vision transformer on images [B, h, w, C] of any size that `patch` divides.

    Attention has the parameter names of Flax's own layer; positions are a trainable table
    `pos_embed`, random here and sin-cos by `schemes.SinCos`, or rotary.

    Attributes:
        num_classes: width of the logits.
        width: D, of the activations.
        depth: L, the number of blocks.
        heads: H, a divisor of D.
        patch: side of a square patch in pixels.
        mlp_ratio: F / D, how much wider the hidden layer of an MLP is.
        pool: "token" (a class token, first in the sequence) or "mean" over patches.
        rotary: base of rotary positions in place of the table, 0 for the table: half of a head's
            pairs of columns turn with the row of a patch, half with its column; the class token
            doesn't turn.
        token_std: standard deviation of the class token's normal draw. DeiT and timm drew 0.02
            until 2022; later timm draws 1e-6, and 0 if it skips initialization. Near 0, the first
            LayerNorm multiplies the token's gradient by up to 1000: see configs/digits_vit.py.
        dropout: rate after positions, attention and MLP layers.
        drop_path: stochastic depth, rising linearly from 0 to this rate in the last block.
        base: the initialization that schemes start from: "timm", "torch" or "flax".
        layer_scale: a learned diagonal D in the attention's residual: "branch", x + D attention(…),
            which is LayerScale; "skip", D x + attention(…), the paper's own version; "" for none.
        scale_init: initial entries of D.
        scan: one loop over a block: the program's size doesn't grow with L. The parameters of
            `block_0` … are stacked, L in front, under the one name `blocks`; initial values and
            dropout masks are other draws. A GPU moves more memory for it.
        remat: recompute each block in the backward pass, about a third more arithmetic, to keep
            only its input. Best with `scan`: XLA on CPU frees nothing in the unrolled model.
        dtype: the dtype of the computation; parameters, softmax and logits stay float32.

    Example:
        >>> model = ViT(num_classes=10, width=16, depth=2, heads=2, patch=4)
        >>> params = jax.eval_shape(model.init, jax.random.key(0), jnp.ones((1, 8, 8, 1)))["params"]
        >>> params["pos_embed"].shape
        (1, 5, 16)

    Reference: An Image is Worth 16x16 Words; sizes and defaults of timm and DeiT. Rotary positions
    are axial with whole numbers of patches, as in Rotary Position Embedding for Vision Transformer
    (Heo et al. 2024), where the base is 100.
    """

    num_classes: int
    width: int = 192
    depth: int = 12
    heads: int = 3
    patch: int = 4
    mlp_ratio: float = 4.0
    pool: str = "token"
    rotary: float = 0.0
    token_std: float = 0.02
    dropout: float = 0.0
    drop_path: float = 0.0
    base: str = "timm"
    layer_scale: str = ""
    scale_init: float = 0.1
    scan: bool = False
    remat: bool = False
    dtype: Any = jnp.float32

    traits: ClassVar[Traits] = Traits(
        grid=patch_grid,
        rotary=lambda model: Rotary(model.rotary, axes=2) if model.rotary else None,
        sharding=TRANSFORMER_SHARDING,
        # timm's and DeiT's groups: vectors and numbers, positions, the class token
        no_decay=r"(^|/)(bias|scale|pos_embed|cls_token|layer_scale|skip_scale)$",
    )

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Logits [B, classes], float32. Training needs a "dropout" rng if a rate isn't 0."""
        self._check()
        init = base_init(self.base)
        x = patch_embed(images, self.patch, self.width, init.patch, torch_bias, self.dtype)
        grid = x.shape[1:3]
        x = x.reshape(len(x), -1, self.width)
        if self.pool == "token":
            normal = nn.initializers.normal(self.token_std)
            token = self.param("cls_token", normal, (1, 1, self.width))
            token = jnp.broadcast_to(token.astype(x.dtype), (len(x), 1, self.width))
            x = jnp.concatenate([token, x], axis=1)
        if not self.rotary:
            x = add_table(x, self.param("pos_embed", POSITION, (1, *x.shape[1:])))
        x = Dropout()(x, self.dropout, train)
        last = max(self.depth - 1, 1)
        rates = [self.drop_path * layer / last for layer in range(self.depth)]
        drop_path = rates if self.drop_path else None
        x = stack(Block, self, x, drop_path, train=train, grid=grid)
        x = LayerNorm(epsilon=1e-6, dtype=self.dtype, name="norm")(x)
        x = first_token(x) if self.pool == "token" else x.mean(axis=1)
        return classify(x, self.num_classes, init)

    def _check(self) -> None:
        check_heads(self)
        check_choices(self, pool=("token", "mean"), layer_scale=("", "branch", "skip"))
        check_rates(self, "dropout", "drop_path")
        if not 0 <= self.token_std < math.inf:
            raise InputError(f"token_std {self.token_std} is not a finite number ≥ 0")


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), each branch dropped per sample."""

    heads: int
    mlp_ratio: float
    base: str
    train: bool = False
    dropout: float = 0.0
    rotary: float = 0.0
    grid: tuple[int, int] = (0, 0)
    layer_scale: str = ""
    scale_init: float = 0.1
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, x: jax.Array, drop_path: float | jax.Array | None = None
    ) -> tuple[jax.Array, None]:
        """Activations [B, N, D] and nothing: the form of a scan's body."""

        def branch(y: jax.Array) -> jax.Array:
            y = Dropout()(y, self.dropout, self.train)
            return Dropout(broadcast_dims=(1, 2))(y, drop_path, self.train)

        def norm(name: str) -> LayerNorm:
            return LayerNorm(epsilon=1e-6, dtype=self.dtype, name=name)

        init = base_init(self.base).of(x.shape[-1])
        own = {"num_heads": self.heads, "name": "attention", **init}
        attention = Attention(**shared(Attention, self, **own))
        x = self._residual(x, branch(attention(norm("norm1")(x))))
        mlp = MLP(self.mlp_ratio, self.base, self.dtype, name="mlp")
        return by_example(x + branch(mlp(norm("norm2")(x)))), None

    def _residual(self, x: jax.Array, branch: jax.Array) -> jax.Array:
        """The skip connection around attention."""
        if not self.layer_scale:
            return x + branch
        initial = nn.initializers.constant(self.scale_init)
        name = "layer_scale" if self.layer_scale == "branch" else "skip_scale"
        scale: Any = self.param(name, initial, (x.shape[-1],))
        scale = scale.astype(x.dtype)
        return x + scale * branch if self.layer_scale == "branch" else scale * x + branch
