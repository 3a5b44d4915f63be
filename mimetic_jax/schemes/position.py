"""Sin-cos values for the position table."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

import jax
import jax.numpy as jnp

from mimetic_jax import weights
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes.base import Scheme
from mimetic_jax.schemes.block import Block, Context
from mimetic_jax.weights.checks import ANY_SIGN, NOT_NEGATIVE
from mimetic_jax.weights.position import TEMPERATURE


@dataclasses.dataclass(frozen=True)
class SinCos(Scheme):
    """Sin-cos positions in the (still trainable) position table, and the rows of class tokens.

    γ · sincos_2d(h, w, D) on the patch grid, or γ · sincos_1d(N, D) for text: if the tree embeds
    tokens instead of patches. Rows of class tokens, in front of the grid's, become zero, or normal
    noise: each is added to its token, so that it decides how large the token starts.

    Attributes:
        scale: γ, the amplitude.
        temperature: ratio of the highest to the lowest frequency.
        axes: 2 for a grid of patches, 1 for a line. Text is a line in either case; `axes=1` is for
            a tree that shows neither, such as a table alone, and `grid` for a grid there.
        class_token: size of the rows of class tokens, in that of the grid's rows: c of
            N(0, c² γ² / 2). With zeros at the end of attention nothing arrives at a class token
            that starts near 0: all images have the same logits.

    Raises:
        InputError: if a field is out of its range, or if the positions are neither text nor a known
            grid.

    Example:
        >>> block = Block.of({"position": jnp.ones((4, 8))})
        >>> new = SinCos()(jax.random.key(0), block, Context(grid=(2, 2)))["position"]
        >>> bool(jnp.abs(new).max() <= 1)
        True

    Reference: Mimetic Initialization of Self-Attention Layers, section 4; γ ≈ 2 gains a little
    on CIFAR-10.
    """

    uses = frozenset({"grid"})
    scale: Annotated[float, ANY_SIGN] = 1.0
    temperature: Annotated[float, TEMPERATURE] = 10_000.0
    axes: Annotated[int, Range(1, 2)] = 2
    class_token: Annotated[float, NOT_NEGATIVE] = 0.0

    @property
    def class_token_std(self) -> float:
        """The standard deviation of the rows of class tokens, c γ / √2."""
        return self.class_token * abs(self.scale) / math.sqrt(2)

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"position"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        N, D = block.shapes["position"]
        waves = {"temperature": self.temperature, "scale": self.scale}
        if self.axes == 1 or context.text:
            self._check_class_tokens(0, f"a line of {N}")
            return {"position": weights.sincos_1d(N, D, **waves)}
        if context.grid is None:
            raise InputError(
                f"Cannot tell the grid of {N} positions: they are not square, with or without a "
                "class token, or the tree has other positions too. Pass grid=(rows, columns), pass "
                "the part of the tree that has them, or use SinCos(axes=1) for text."
            )
        if context.text is None:
            raise InputError(
                f"Cannot tell whether the {N} positions are image patches or text. Pass "
                f"grid={context.grid} for patches, or use SinCos(axes=1) for text."
            )
        h, w = context.grid
        table = weights.sincos_2d(h, w, D, **waves)
        front = (N - h * w, D)
        self._check_class_tokens(N - h * w, f"a grid of {h} x {w}")
        rows = jnp.zeros(front)
        if self.class_token:
            rows = self.class_token_std * jax.random.normal(key, front)
        return {"position": jnp.concatenate([rows, table])}

    def _check_class_tokens(self, rows: int, others: str) -> None:
        if self.class_token and not rows:
            raise InputError(
                f"SinCos(class_token={self.class_token:g}) finds no row of a class token: the "
                f"table has {others} positions and no others"
            )
