"""Schemes for MLPs that mix tokens."""

from __future__ import annotations

import dataclasses
import math

import jax

from mimetic_jax.errors import InputError
from mimetic_jax.schemes.base import Block, Context, Scheme
from mimetic_jax.weights.impulse import mixer_token_mixing


@dataclasses.dataclass(frozen=True)
class ImpulseMixing(Scheme):
    """Impulse initialization of an MLP-Mixer: token mixing starts as a mean of shifts.

    The hidden units of a block come in groups of N, and each group holds the tokens shifted by one
    random offset of a filter. Both kernels have the norms of PyTorch's default; biases are
    unchanged. The paper gives no construction, this one is ours: see `weights.mixer_token_mixing`.

    Attributes:
        kernel_size: side of the filters, odd.
        noise: factor on a draw from PyTorch's default, which is added.

    Example:
        >>> sorted(ImpulseMixing().writes(frozenset({"token_in", "token_in_bias", "token_out"})))
        ['token_in', 'token_out']

    Reference: Structured Initialization for Vision Transformers, section 5.3.
    """

    kernel_size: int = 3
    noise: float = 0.1

    def __post_init__(self) -> None:
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise InputError(f"kernel_size {self.kernel_size} is not a positive odd number")
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise InputError(f"noise {self.noise} is not a finite number ≥ 0")

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        present = roles & {"token_in", "token_out"}
        if len(present) == 1:
            raise InputError(
                f"ImpulseMixing needs token_in and token_out but only {next(iter(present))} was "
                "found"
            )
        return present

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        count, hidden = block.shapes["token_in"]
        if block.shapes["token_out"] != (hidden, count):
            raise InputError(
                f"token_in {(count, hidden)} and token_out {block.shapes['token_out']} are not "
                "[N, F] and [F, N]"
            )
        side = math.isqrt(count)
        grid = context.grid or (side, side)
        if math.prod(grid) != count:
            raise InputError(
                f"token_in {(count, hidden)} mixes {count} tokens, which are not a grid of "
                f"{grid[0]}x{grid[1]}: give grid=(h, w)"
            )
        token_in, token_out = mixer_token_mixing(
            key, grid, hidden, kernel_size=self.kernel_size, noise=self.noise
        )
        return {"token_in": token_in, "token_out": token_out}
