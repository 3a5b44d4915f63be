"""A scheme whose draw needs no factorization: independent entries in the kernels of attention."""

import dataclasses

import jax

from mimetic_jax.schemes.base import attention_kernels
from mimetic_jax.schemes.kernels import _Kernels, fans


@dataclasses.dataclass(frozen=True)
class Noise(_Kernels):
    """Normal entries of variance 1 / fan-in."""

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return attention_kernels(roles)

    def _kernel(
        self, key: jax.Array, role: str, shape: tuple[int, ...], num_layers: int
    ) -> jax.Array:
        return jax.random.normal(key, shape) * fans(role, shape)[0] ** -0.5
