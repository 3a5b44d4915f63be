"""Parts of models whose blocks all have one shape: patches, the stack of blocks, the classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.errors import InputError
from mimetic_jax.models.init import BaseInit


def patch_grid(model: Any, image: tuple[int, ...]) -> tuple[int, int]:
    """(rows, columns) of the patches of an image [h, w, C]: the trait `grid`."""
    return image[0] // model.patch, image[1] // model.patch


def patch_embed(
    images: jax.Array,
    patch: int,
    width: int,
    kernel_init: nn.initializers.Initializer,
    bias_init: nn.initializers.Initializer,
    dtype: Any,
) -> jax.Array:
    """Patches as vectors, [B, h, w, D]: a convolution of stride `patch`, written as a product.

    Call it in a compact method; its parameters have the name `patch_embed`.

    Raises:
        InputError: if the patch doesn't divide the image.
    """
    rows, columns = images.shape[1:3]
    if rows % patch or columns % patch:
        raise InputError(f"patch {patch} does not divide the image {rows}x{columns}")
    x = einops.rearrange(images, "b (h p) (w q) c -> b h w (p q c)", p=patch, q=patch)
    return nn.Dense(
        width, kernel_init=kernel_init, bias_init=bias_init, dtype=dtype, name="patch_embed"
    )(x)


def stack(
    block: Any, fields: Mapping[str, Any], depth: int, x: jax.Array, *, scan: bool, remat: bool
) -> jax.Array:
    """`depth` blocks, one after the other. Call it in a compact method.

    Args:
        block: a module class: x -> (x, None), the form of a scan's body.
        fields: the fields of every block.
        depth: L.
        x: activations.
        scan: make one loop of the blocks: their parameters and running statistics are stacked, L in
            front, under the name `blocks`, instead of `block_0` ….
        remat: recompute each block in the backward pass and keep only its input.
    """
    if remat:  # a scan needs no barrier against merging the recomputed block
        block = nn.remat(block, prevent_cse=not scan)
    if not scan:
        for layer in range(depth):
            x, _ = block(**fields, name=f"block_{layer}")(x)
        return x
    scanned = nn.scan(
        block,
        variable_axes={"params": 0, "batch_stats": 0},
        split_rngs={"params": True},
        length=depth,
    )
    return scanned(**fields, name="blocks")(x)[0]


def classify(x: jax.Array, num_classes: int, init: BaseInit) -> jax.Array:
    """Logits [B, classes], float32, of pooled activations [B, D]. Call it in a compact method."""
    return nn.Dense(
        num_classes,
        kernel_init=init.linear,
        bias_init=init.linear_bias(x.shape[-1]),
        name="head",
    )(x.astype(jnp.float32))
