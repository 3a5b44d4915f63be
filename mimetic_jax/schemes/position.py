"""Sin-cos values for the position table."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp

from mimetic_jax import weights
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes.base import Scheme
from mimetic_jax.schemes.block import Block, Context
from mimetic_jax.weights.checks import ANY_SIGN
from mimetic_jax.weights.position import TEMPERATURE


@dataclasses.dataclass(frozen=True)
class SinCos(Scheme):
    """Sin-cos positions in the (still trainable) position table; class-token rows become zero.

    γ · sincos_2d(h, w, D) on the patch grid, or γ · sincos_1d(N, D) for text: if the tree embeds
    tokens instead of patches.

    Attributes:
        scale: γ, the amplitude.
        temperature: ratio of the highest to the lowest frequency.
        axes: 2 for a grid of patches, 1 for a line. Text is a line in either case; `axes=1` is for
            a tree that shows neither, such as a table alone, and `grid` for a grid there.

    Reference: Mimetic Initialization of Self-Attention Layers, section 4; γ ≈ 2 gains a little
    on CIFAR-10.
    """

    scale: Annotated[float, ANY_SIGN] = 1.0
    temperature: Annotated[float, TEMPERATURE] = 10_000.0
    axes: Annotated[int, Range(1, 2)] = 2

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"position"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        del key  # nothing here is random
        N, D = block.shapes["position"]
        waves = {"temperature": self.temperature, "scale": self.scale}
        if self.axes == 1 or context.text:
            return {"position": weights.sincos_1d(N, D, **waves)}
        if context.grid is None:
            raise InputError(
                f"{N} positions aren't a square grid, with or without a class token, or aren't the "
                f"tree's only ones: give grid=(h, w), or the part of the tree "
                "that has them; for text SinCos(axes=1)"
            )
        if context.text is None:
            raise InputError(
                f"{N} positions may be a grid of patches or a line of text, and the tree doesn't "
                f"show which by an embedding of one of them: give grid=(h, w), or "
                "SinCos(axes=1)"
            )
        h, w = context.grid
        table = weights.sincos_2d(h, w, D, **waves)
        return {"position": jnp.pad(table, ((N - h * w, 0), (0, 0)))}
