"""Parts that several models share: checks, patches, the stack of blocks, dropout, MLP, classifier.

Call the functions in a compact method: they make submodules of the caller.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.models.init import BaseInit, Initializer, base_init
from mimetic_jax.models.low_memory import gelu


def check_choices(model: Any, **choices: Iterable[str]) -> None:
    """Raise InputError if a field isn't one of its choices."""
    for name, known in choices.items():
        if getattr(model, name) not in known:
            raise unknown(name, getattr(model, name), known)


def check_heads(model: Any) -> None:
    """Raise InputError if the heads don't divide the width."""
    if model.width % model.heads:
        raise InputError(f"heads {model.heads} does not divide width {model.width}")


def check_rates(model: Any, *names: str) -> None:
    """Raise InputError if a rate of dropout isn't in [0, 1)."""
    for name in names:
        if not 0 <= getattr(model, name) < 1:
            raise InputError(f"{name} {getattr(model, name)} is not in [0, 1)")


def by_example(x: jax.Array) -> jax.Array:
    """Activations [B, N, D], or [B, h, w, D] of images, sharded by their logical axes.

    Without `nn.logical_axis_rules` and a mesh it returns x. With them the constraint is needed: in
    a loop over layers GSPMD otherwise takes the sharding of the parameters for that of the
    activations, gathers no kernel, and every device computes the attention of all of "fsdp".
    """
    length = ("length",) if x.ndim == 3 else ("height", "width")
    return nn.with_logical_constraint(x, ("batch", *length, "embed"))


def patch_grid(model: Any, image: tuple[int, ...]) -> tuple[int, int]:
    """Return (rows, columns) of the patches of an image [h, w, C]: the trait `grid`."""
    return image[0] // model.patch, image[1] // model.patch


def patch_embed(
    images: jax.Array,
    patch: int,
    width: int,
    kernel_init: Initializer,
    bias_init: Callable[[int], Initializer],
    dtype: Any,
) -> jax.Array:
    """Patches as vectors, [B, h, w, D]: a convolution of stride `patch`, written as a product."""
    rows, columns = images.shape[1:3]
    if rows % patch or columns % patch:
        raise InputError(f"patch {patch} does not divide the image {rows}x{columns}")
    x = space_to_depth(images, patch)
    return nn.Dense(
        width,
        kernel_init=kernel_init,
        bias_init=bias_init(x.shape[-1]),
        dtype=dtype,
        name="patch_embed",
    )(x)


def space_to_depth(x: jax.Array, factor: int) -> jax.Array:
    """Reshape [B, h, w, C] to [B, h/f, w/f, f² C]: the pixels of each f×f square as channels."""
    return einops.rearrange(x, "b (h p) (w q) c -> b h w (p q c)", p=factor, q=factor)


def shared(module: type[nn.Module], model: nn.Module, **own: Any) -> dict[str, Any]:
    """Fields of a module: its own ones, and the model's if both have one of that name."""
    known, others = ({field.name for field in dataclasses.fields(of)} for of in (module, model))
    both = sorted((known & others) - {"name", "parent"})
    return {name: getattr(model, name) for name in both} | own


def stack(
    block: type[nn.Module],
    model: Any,
    x: jax.Array,
    *numbers: Sequence[float] | None,
    **fields: Any,
) -> jax.Array:
    """Apply the `depth` blocks of a model, one after the other; `scan` and `remat` are as in
    `ViT`.

    A block is a module class: (x, number, …) -> (x, None), the form of a scan's body. `numbers` has
    its further arguments, each L numbers, which are traced in a scan, or None for all blocks.
    `fields` are those of the blocks that aren't fields of the model, see `shared`.
    """
    body, fields = block, shared(block, model, **fields)
    if model.remat:  # a scan needs no barrier against merging the recomputed block
        # Integers choose a program, such as a roll by so many pixels.
        static = [at for at, each in enumerate(numbers, 2) if each and isinstance(each[0], int)]
        arguments = () if model.scan else tuple(static)
        body = nn.remat(body, prevent_cse=not model.scan, static_argnums=arguments)
    if not model.scan:
        for layer in range(model.depth):
            of_layer = [None if each is None else each[layer] for each in numbers]
            x, _ = body(**fields, name=f"block_{layer}")(x, *of_layer)
        return x
    scanned = nn.scan(
        body,
        variable_axes={"params": 0, "batch_stats": 0, "intermediates": 0},
        split_rngs={"params": True, "dropout": True},
        length=model.depth,
    )
    return scanned(**fields, name="blocks")(x, *(n and jnp.array(n) for n in numbers))[0]


class Dropout(nn.Module):
    """`nn.Dropout` whose rate may be traced, as each layer's own is in a scan."""

    broadcast_dims: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, x: jax.Array, rate: float | jax.Array | None, train: bool) -> jax.Array:
        if not train or not (isinstance(rate, jax.Array) or rate):
            return x
        shape = [1 if axis in self.broadcast_dims else size for axis, size in enumerate(x.shape)]
        kept = jax.random.bernoulli(self.make_rng("dropout"), 1 - rate, shape)
        return jnp.where(kept, x / jnp.asarray(1 - rate, x.dtype), 0)


class MLP(nn.Module):
    """fc2(gelu(fc1(x))), hidden width F = `ratio` · D; the exact GELU, as in PyTorch.

    With `learn_sum` it is fc2(gelu(fc1(x) + c Σ_d x_d)), c a learned number that starts at 0; with
    `gated` SwiGLU, fc2(silu(fc1(x)) ∘ up(x)).
    """

    ratio: float
    base: str
    dtype: Any
    learn_sum: bool = False
    gated: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width, hidden = x.shape[-1], int(x.shape[-1] * self.ratio)
        init = base_init(self.base)

        def dense(features: int, fan_in: int, name: str) -> nn.Dense:
            return nn.Dense(features, **init.of(fan_in), dtype=self.dtype, name=name)

        h = dense(hidden, width, "fc1")(x)
        if self.learn_sum:
            factor: Any = self.param("sum", nn.initializers.zeros, ())
            h += (factor * x.sum(axis=-1, keepdims=True)).astype(h.dtype)
        h = nn.silu(h) * dense(hidden, width, "up")(x) if self.gated else gelu(h)
        return dense(width, hidden, "fc2")(h)


def first_token(x: jax.Array) -> jax.Array:
    """Return [B, D] of [B, N, D]: the activations of the class token.

    The barrier keeps the gradient's zeros for the other tokens in an array. Fused into the sum over
    B and N behind it, as in the gradient of a LayerNorm's bias, jaxlib 0.9.2 to 0.10.1 drop them on
    CPUs and multiply the sum by N: see `host.sums`.
    """
    return jax.lax.optimization_barrier(x)[:, 0]


def classify(x: jax.Array, classes: int, init: BaseInit) -> jax.Array:
    """Logits [..., classes], float32, of activations [..., D]."""
    return nn.Dense(classes, **init.of(x.shape[-1]), name="head")(x.astype(jnp.float32))
