"""The base of schemes that draw each kernel separately."""

from __future__ import annotations

import dataclasses
import math
from typing import TypeAlias

import jax
import jax.numpy as jnp

from mimetic_jax.schemes.base import Scheme
from mimetic_jax.schemes.block import Block, Context

Shape: TypeAlias = tuple[int, ...]

_KERNELS = (
    *("query", "key", "value", "out"),
    *("mlp_in", "mlp_out", "token_in", "token_out", "mlp_gate"),
)


@dataclasses.dataclass(frozen=True)
class _Kernels(Scheme):
    """Base of schemes that draw each kernel separately and set the kernels' biases to zero."""

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        """The roles to draw."""
        raise NotImplementedError

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        """One kernel, with its heads flattened or not."""
        raise NotImplementedError

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        kernels = self._kernels(roles)
        return kernels | (roles & {f"{role}_bias" for role in kernels})

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        # One key per role, present or not, so that no kernel depends on which others exist.
        keys = dict(zip(_KERNELS, jax.random.split(key, len(_KERNELS)), strict=True))
        new = {}
        for role in sorted(self.writes(frozenset(block))):
            shape = block.shapes[role]
            if role.endswith("_bias"):
                new[role] = jnp.zeros(shape)
            else:
                new[role] = self._kernel(keys[role], role, shape, context.num_layers).reshape(shape)
        return new


def fans(role: str, shape: Shape) -> tuple[int, int]:
    """Rows and columns of a kernel whose heads are flattened."""
    split = -1 if role == "out" else 1
    return math.prod(shape[:split]), math.prod(shape[split:])


def uniform(key: jax.Array, shape: Shape, std: float) -> jax.Array:
    """Uniform noise of a standard deviation, U(±√3 std)."""
    return jax.random.uniform(key, shape, jnp.float32, -math.sqrt(3), math.sqrt(3)) * std
