"""The base of schemes that draw each kernel separately."""

from __future__ import annotations

import dataclasses
import math
from typing import TypeAlias

import jax
import jax.numpy as jnp

from mimetic_jax.schemes.base import Block, Context, Scheme, attention_kernels
from mimetic_jax.weights.factor import haar_basis

Shape: TypeAlias = tuple[int, ...]

_MLPS = ("mlp_in", "mlp_out", "token_in", "token_out", "mlp_gate")
_KERNELS = ("query", "key", "value", "out", *_MLPS)

OUTPUTS = frozenset({"out", "mlp_out", "token_out"})
"""The last kernel of each residual branch."""


@dataclasses.dataclass(frozen=True)
class _Kernels(Scheme):
    """Base of schemes that draw each kernel separately and set the kernels' biases to zero."""

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        """The roles to draw: all kernels, unless a scheme says otherwise."""
        return dense_kernels(roles)

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


def dense_kernels(roles: frozenset[str]) -> frozenset[str]:
    """The kernels of attention, and those of MLPs over channels and over tokens."""
    return attention_kernels(roles) | roles.intersection(_MLPS)


def uniform(key: jax.Array, shape: Shape, std: float) -> jax.Array:
    """Uniform noise of a standard deviation, U(±√3 std)."""
    return jax.random.uniform(key, shape, jnp.float32, -math.sqrt(3), math.sqrt(3)) * std


def semi_orthogonal(key: jax.Array, fan_in: int, fan_out: int) -> jax.Array:
    """A random matrix [fan_in, fan_out] whose singular values are all 1, Haar-distributed:
    WᵀW = I, or W Wᵀ = I if it widens.

    >>> query = semi_orthogonal(jax.random.key(0), 12, 8)
    >>> bool(jnp.allclose(query.T @ query, jnp.eye(8), atol=1e-5))
    True
    """
    tall = (1, max(fan_in, fan_out), min(fan_in, fan_out))
    (basis,) = jnp.asarray(haar_basis(jax.random.normal(key, tall, jnp.float32)))
    return basis.T if fan_out > fan_in else basis
