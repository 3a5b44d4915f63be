"""Schemes for the relative position biases of attention in windows."""

from __future__ import annotations

import dataclasses
import math

import jax

from mimetic_jax.errors import InputError
from mimetic_jax.schemes.base import Block, Context, Scheme
from mimetic_jax.weights.impulse import offsets, swin_bias, swin_shared_bias


@dataclasses.dataclass(frozen=True)
class ImpulseBias(Scheme):
    """Structured initialization of a Swin: attention starts out on one neighbor of each token.

    The relative position bias at one offset gains `strength`; all other biases stay as drawn. Where
    each head has a table, head h gets the h-th offset of `weights.impulse.offsets`, in every block.
    Where the heads of a block share a table, block l gets the l-th. Both start over at the end of
    the list. At an offset of a neighbor outside the window, or outside the grid, the token attends
    as before.

    Not idempotent: each application adds the strength again.

    Attributes:
        strength: the gain; ours, since the paper gives no number. At 5, with all other biases near
            0, the offset gets ¾ of the attention in a window of 7×7 and 9/10 in one of 4×4.
        kernel_size: side of the filter that the offsets are of, odd.

    Example:
        >>> sorted(ImpulseBias().writes(frozenset({"query", "key", "relative_bias"})))
        ['relative_bias']

    Reference: Structured Initialization for Vision Transformers, section 5.3.
    """

    strength: float = 5.0
    kernel_size: int = 3

    def __post_init__(self) -> None:
        if not (math.isfinite(self.strength) and self.strength > 0):
            raise InputError(f"strength {self.strength} is not a positive number")

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"relative_bias", "shared_bias"}

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        new = {}
        if "relative_bias" in block:
            shifts = offsets(self.kernel_size, block.shapes["relative_bias"][1])
            new["relative_bias"] = swin_bias(block["relative_bias"], shifts, strength=self.strength)
        if "shared_bias" in block:
            shift = offsets(self.kernel_size, context.layer + 1)[-1]
            new["shared_bias"] = swin_shared_bias(
                block["shared_bias"], shift, strength=self.strength
            )
        return new
