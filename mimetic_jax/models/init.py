"""The base initializations that schemes start from: timm's, PyTorch's, and Flax's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax

from mimetic_jax.base.errors import unknown

Initializer = Callable[..., jax.Array]


@dataclasses.dataclass(frozen=True)
class BaseInit:
    """Initial values before any scheme: of kernels, of biases given the fan-in, and of the kernel
    that embeds patches."""

    linear: Initializer
    linear_bias: Callable[[int], Initializer]
    patch: Initializer

    def of(self, fan_in: int) -> dict[str, Any]:
        """Return both initializers of a linear layer, as its arguments."""
        return {"kernel_init": self.linear, "bias_init": self.linear_bias(fan_in)}


def torch_bias(fan_in: int) -> Initializer:
    """PyTorch's default bias, U(±1/√fan_in)."""

    def init(key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -(fan_in**-0.5), fan_in**-0.5)

    return init


POSITION = nn.initializers.normal(0.02)
"""The learned position table, whatever the base."""

_TORCH_KERNEL = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
_BASES = {
    # timm's trunc_normal_(std=.02) truncates at ±2, which is 100 standard deviations: a normal. The
    # patch embedding, a convolution, keeps PyTorch's default with its bias.
    "timm": BaseInit(
        linear=nn.initializers.normal(0.02),
        linear_bias=lambda fan_in: nn.initializers.zeros,
        patch=_TORCH_KERNEL,
    ),
    # What `weight_init=skip` leaves in timm, the base of the structured paper's released code.
    "torch": BaseInit(
        linear=_TORCH_KERNEL,
        linear_bias=torch_bias,
        patch=_TORCH_KERNEL,
    ),
    # What `nn.Dense` has in Flax, embeddings of patches included.
    "flax": BaseInit(
        linear=nn.initializers.lecun_normal(),
        linear_bias=lambda fan_in: nn.initializers.zeros,
        patch=nn.initializers.lecun_normal(),
    ),
}


def base_init(name: str) -> BaseInit:
    """Return the base initialization called "timm", "torch" or "flax".

    >>> base_init("torch").linear_bias(4)(jax.random.key(0), (3,), "float32").shape
    (3,)
    """
    if name not in _BASES:
        raise unknown("base initialization", name, _BASES)
    return _BASES[name]
