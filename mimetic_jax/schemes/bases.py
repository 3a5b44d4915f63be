"""Schemes whose kernels are bases: orthonormal, coordinates, cosines, sines.

They set the biases of the kernels that they write to zero.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import jax

from mimetic_jax.schemes.kernels import Shape, _Kernels, fans, semi_orthogonal
from mimetic_jax.weights.checks import POSITIVE


@dataclasses.dataclass(frozen=True)
class Orthogonal(_Kernels):
    """Every attention and MLP kernel is a random semi-orthogonal matrix, all its heads together.

    W = g·U with UᵀU = I or U Uᵀ = I, independent for every kernel.

    Attributes:
        gain: g, each singular value.

    Reference: Exact Solutions to the Nonlinear Dynamics of Learning in Deep Linear Neural Networks
    (Saxe, McClelland and Ganguli 2014).
    """

    gain: Annotated[float, POSITIVE] = 1.0

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        return self.gain * semi_orthogonal(key, *fans(role, shape))
