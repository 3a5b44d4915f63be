"""Kernels of independent entries, whose standard deviation follows a rule."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Self

import jax

from mimetic_jax.schemes.base import attention_kernels
from mimetic_jax.schemes.kernels import OUTPUTS, Shape, _Kernels, dense_kernels, fans, uniform
from mimetic_jax.weights.checks import NOT_NEGATIVE


@dataclasses.dataclass(frozen=True)
class Independent(_Kernels):
    """Every attention and MLP kernel has independent entries of mean 0, normal or uniform.

    σ = std · fan_in^−power, times min(1, √(fan_out / fan_in)) if `spectral`; in the last kernel of
    a residual branch, of which L blocks have 2L, also times (2L)^−depth. Biases become zero.

    | initialization                             | scheme                                |
    |--------------------------------------------|---------------------------------------|
    | Flax's and LeCun's, fan_in^−½              | `Independent()`                       |
    | a normal of .02 (BERT, timm's ViTs)        | `Independent(0.02, 0)`                |
    | GPT-2's, .02 / √(2L) where branches end    | `Independent.gpt2()`                  |
    | small, D^−γ with γ > ½                     | `Independent(power=0.8)`              |
    | spectral, fan_in^−½ min(1, √(fan_out/fan_in)) | `Independent(spectral=True)`       |
    | the nanoGPT speed-run's, uniform of ½ D^−½ | `Independent(0.5, uniform=True)`      |
    | its final choice for attention alone       | `Independent(0.5, uniform=True, mlp=False)` |

    The control of a structured scheme is `NormMatched`; this is its own.

    Attributes:
        std: the factor that all kernels share.
        power: the power of 1 / fan_in.
        depth: the power of 1 / 2L in the last kernels of residual branches.
        spectral: whether kernels that narrow have less, so that spectral norms are those of
            √(fan_out / fan_in).
        uniform: whether the distribution is uniform instead of normal.
        mlp: whether the kernels of MLPs are written as well as those of attention.

    Reference: Language Models are Unsupervised Multitask Learners (GPT-2), section 2.3; A Spectral
    Condition for Feature Learning (Yang, Simon and Bernstein 2023), parametrization 1;
    Initialization is Critical to Whether Transformers Fit Composite Functions by Reasoning or
    Memorizing (Zhang et al. 2024), whose γ is `power`.
    """

    std: Annotated[float, NOT_NEGATIVE] = 1.0
    power: float = 0.5
    depth: float = 0.0
    spectral: bool = False
    uniform: bool = False
    mlp: bool = True

    @property
    def by_depth(self) -> bool:  # type: ignore[override]
        """Whether the number of layers counts."""
        return bool(self.depth)

    @classmethod
    def gpt2(cls) -> Self:
        """A normal of .02, divided by √(2L) in the last kernel of each residual branch.

        >>> Independent.gpt2()
        Independent(std=0.02, power=0.0, depth=0.5, spectral=False, uniform=False, mlp=True)
        """
        return cls(std=0.02, power=0.0, depth=0.5)

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return dense_kernels(roles) if self.mlp else attention_kernels(roles)

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        fan_in, fan_out = fans(role, shape)
        std = self.std * fan_in**-self.power
        if self.spectral:
            std *= min(1.0, math.sqrt(fan_out / fan_in))
        if role in OUTPUTS:
            std *= (2 * num_layers) ** -self.depth
        return uniform(key, shape, std) if self.uniform else std * jax.random.normal(key, shape)
