"""The Swin transformer: attention in shifted windows, on grids that shrink from stage to stage."""

from __future__ import annotations

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.models.init import base_init, torch_bias
from mimetic_jax.models.layers import (
    MLP,
    Dropout,
    by_example,
    check_choices,
    check_rates,
    classify,
    patch_embed,
    shared,
    space_to_depth,
    stack,
)
from mimetic_jax.models.low_memory import LayerNorm
from mimetic_jax.models.traits import TRANSFORMER_SHARDING, Traits
from mimetic_jax.models.windows import WindowAttention

_BASES = {"microsoft": "timm", "cifar": "torch"}


class Swin(nn.Module):
    """A Swin transformer on images [B, h, w, C]: that of Microsoft, or a form of it for CIFAR.

    Stage s has width 2ˢ · D. Attention has the parameter names of Flax's own layer, and a table of
    relative position biases, see `WindowAttention`; there are no absolute positions.

    | form                   | microsoft                     | cifar                       |
    |------------------------|-------------------------------|-----------------------------|
    | position biases        | a table per head, N(0, 0.02²) | one for all heads, N(0, 1)  |
    | query, key, value      | with biases                   | without                     |
    | patch embedding        | linear, LayerNorm             | linear                      |
    | merging of patches     | LayerNorm, linear, no bias    | linear with bias            |
    | at the end             | LayerNorm, mean, linear       | mean, LayerNorm, linear     |
    | one window per stage   | is not shifted                | is shifted, in masked parts |
    | linear layers start as | N(0, 0.02²) with zero biases  | PyTorch's default           |

    Attributes:
        num_classes: width of the logits.
        form: "microsoft", the released code of the paper, or "cifar", that of
            kentaroy47/vision-transformers-cifar10.
        width: D, of the activations in the first stage.
        depths: number of blocks per stage.
        downscaling: by how much each stage divides both sides of the grid; the first number is the
            side of a patch in pixels.
        head_dim: K, the same in all stages; heads are more where stages are wider.
        window: W, a divisor of both sides of the grid of every stage. Every other block shifts its
            windows by ⌊W/2⌋.
        drop_path: stochastic depth, rising linearly from 0 to this rate in the last block of all.
        scan: one loop over a block per stage: the program's size doesn't grow with depth. The
            parameters of `block_0` … of a stage are stacked under the one name `blocks`; initial
            values and dropped paths are other draws.
        remat: recompute each block in the backward pass to keep only its input.
        dtype: the dtype of the computation; parameters, softmax and logits stay float32.

    Example:
        >>> model = Swin(num_classes=10, width=16, depths=(1, 2), downscaling=(2, 2), head_dim=8,
        ...              window=4)
        >>> images = jnp.ones((1, 16, 16, 3))
        >>> params = jax.eval_shape(model.init, jax.random.key(0), images)["params"]
        >>> params["stage_1"]["block_0"]["attention"]["query"]["kernel"].shape
        (32, 4, 8)

    Reference: Swin Transformer: Hierarchical Vision Transformer using Shifted Windows (Liu et al.
    2021); the defaults are its Swin-B.
    """

    num_classes: int
    form: str = "microsoft"
    width: int = 128
    depths: tuple[int, ...] = (2, 2, 18, 2)
    downscaling: tuple[int, ...] = (4, 2, 2, 2)
    head_dim: int = 32
    window: int = 7
    drop_path: float = 0.0
    scan: bool = False
    remat: bool = False
    dtype: Any = jnp.float32

    traits: ClassVar[Traits] = Traits(
        sharding=TRANSFORMER_SHARDING,
        no_decay=r"(^|/)(bias|scale|relative_bias|shared_bias)$",  # Microsoft's groups
    )

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Logits [B, classes], float32. Training needs a "dropout" rng if drop_path isn't 0."""
        self._check(images.shape[1:3])
        init = base_init(_BASES[self.form])
        patch = self.downscaling[0]
        x = patch_embed(images, patch, self.width, init.patch, torch_bias, self.dtype)
        if self.form == "microsoft":
            x = LayerNorm(epsilon=1e-5, dtype=self.dtype, name="patch_norm")(x)
        rates = np.linspace(0, self.drop_path, sum(self.depths)).tolist()
        for stage, depth in enumerate(self.depths):
            drop_path = rates[:depth] if self.drop_path else None
            factor, width = self.downscaling[stage] if stage else None, self.width * 2**stage
            own = shared(Stage, self, width=width, depth=depth, downscaling=factor)
            x = Stage(**own, name=f"stage_{stage}")(x, train, drop_path)
            rates = rates[depth:]
        norm = LayerNorm(epsilon=1e-5, dtype=self.dtype, name="norm")
        pooled = norm(x).mean((1, 2)) if self.form == "microsoft" else norm(x.mean((1, 2)))
        return classify(pooled, self.num_classes, init)

    def _check(self, image: tuple[int, ...]) -> None:
        check_choices(self, form=_BASES)
        check_rates(self, "drop_path")
        if len(self.depths) != len(self.downscaling):
            raise InputError(
                f"depths {self.depths} and downscaling {self.downscaling} have different lengths"
            )
        if self.width % self.head_dim:
            raise InputError(f"head_dim {self.head_dim} does not divide width {self.width}")
        rows, columns = image
        for stage, factor in enumerate(self.downscaling):
            if rows % factor or columns % factor:
                of = f"grid of stage {stage - 1}" if stage else "image"
                raise InputError(f"downscaling {factor} does not divide the {rows}x{columns} {of}")
            rows, columns = rows // factor, columns // factor
            if rows % self.window or columns % self.window:
                raise InputError(
                    f"window {self.window} does not divide the {rows}x{columns} grid of stage "
                    f"{stage}"
                )


class Stage(nn.Module):
    """Merging of patches into a coarser grid of wider tokens, then blocks."""

    form: str
    width: int
    depth: int
    downscaling: int | None
    head_dim: int
    window: int
    scan: bool
    remat: bool
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, drop_path: list[float] | None) -> jax.Array:
        """Activations [B, h, w, D]; a rate of dropped paths per block, or None."""
        if self.downscaling:
            x = self._merged(x, self.downscaling)
        shift = self.window // 2
        if self.form == "microsoft" and min(x.shape[1:3]) <= self.window:
            shift = 0
        shifts = [shift * (layer % 2) for layer in range(self.depth)]
        # A stage without any shift needs no mask.
        numbers = (shifts if any(shifts) else None, drop_path)
        return stack(Block, self, x, *numbers, heads=self.width // self.head_dim, train=train)

    def _merged(self, x: jax.Array, factor: int) -> jax.Array:
        init = base_init(_BASES[self.form])
        x = space_to_depth(x, factor)
        if self.form == "microsoft":
            x = LayerNorm(epsilon=1e-5, dtype=self.dtype, name="merge_norm")(x)
        return nn.Dense(
            self.width,
            use_bias=self.form == "cifar",
            **init.of(x.shape[-1]),
            dtype=self.dtype,
            name="merge",
        )(x)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), each branch dropped per sample."""

    form: str
    heads: int
    window: int
    train: bool
    dtype: Any

    @nn.compact
    def __call__(
        self, x: jax.Array, shift: int | jax.Array | None, drop_path: float | jax.Array | None
    ) -> tuple[jax.Array, None]:
        """Activations [B, h, w, D] and nothing: the form of a scan's body."""
        base = _BASES[self.form]

        def branch(y: jax.Array) -> jax.Array:
            return Dropout(broadcast_dims=(1, 2, 3))(y, drop_path, self.train)

        def norm(name: str) -> LayerNorm:
            return LayerNorm(epsilon=1e-5, dtype=self.dtype, name=name)

        attention = WindowAttention(
            **shared(WindowAttention, self, num_heads=self.heads),
            **base_init(base).of(x.shape[-1]),
            shared_bias=self.form == "cifar",
            qkv_bias=self.form == "microsoft",
            name="attention",
        )
        x += branch(attention(norm("norm1")(x), shift))
        mlp = MLP(4.0, base, self.dtype, name="mlp")
        return by_example(x + branch(mlp(norm("norm2")(x)))), None
