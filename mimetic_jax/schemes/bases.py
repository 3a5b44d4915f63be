"""Schemes whose kernels are bases: orthonormal, coordinates, cosines, sines.

They set the biases of the kernels that they write to zero.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes.base import attention_kernels
from mimetic_jax.schemes.kernels import Shape, _Kernels, fans, semi_orthogonal
from mimetic_jax.weights.checks import POSITIVE, check_room


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


@dataclasses.dataclass(frozen=True)
class Conditioned(_Kernels):
    """Attention kernels of condition number 1: W_Q and W_K semi-orthogonal, W_V an identity.

    In every head W_Q and W_K are random [D, K] with orthonormal columns and W_V = I, so that all
    value heads read the same first K coordinates. Out is unchanged.

    The paper is accepted at ICLR 2026; only summaries of it were available (secondary sources),
    from which the form per head is read as its algorithm 1.

    Attributes:
        per_head: the algorithm's form; or, if False, condition number 1 for all heads side by side,
            [D, H·K] and [D, G·K], where head h of the value reads the K coordinates from h·K on.

    Reference: Conditioned Initialization for Attention (ICLR 2026), algorithm 1.
    """

    per_head: bool = True

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return attention_kernels(roles) & {"query", "key", "value"}

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        D, num_heads, head_dim = shape
        if not self.per_head:
            num_heads, head_dim = 1, num_heads * head_dim
        if role == "value":
            return jnp.tile(jnp.eye(D, head_dim), num_heads)
        return semi_orthogonal(key, D, num_heads * head_dim, num_heads)


@dataclasses.dataclass(frozen=True)
class DCT(_Kernels):
    """Query, key or value kernels that are the orthonormal discrete cosine transform of the width.

    W[i, k] = c_k cos(π (2i + 1) k / 2D), c_0 = √(1/D) and c_k = √(2/D): head h reads a band of K
    frequencies of the channels, the same in every layer. If H·K > D it is the transpose of the
    kernel for swapped sizes. Other kernels are unchanged.

    The paper transforms one kernel at a time, with the largest gain for the key: ImageNet
    Swin-T 81.47 to 81.73, ViT-B/32 73.12 to 73.61. In the released code of its Swins the model's
    own initialization runs after this one and overwrites it; its ViT keeps it.

    Attributes:
        query, key, value: whether the kernel is written.

    Reference: Discrete Cosine Transform-Based Decorrelated Attention for Vision Transformers (Pan
    et al. 2026), tables 2 and 3, and its released code.
    """

    query: bool = False
    key: bool = True
    value: bool = False

    def validate(self) -> None:
        if not (self.query or self.key or self.value):
            raise InputError("DCT writes nothing: set query, key or value to True")

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        wanted = {role for role in ("query", "key", "value") if getattr(self, role)}
        return attention_kernels(roles) & wanted

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        import scipy.fft  # takes 0.1 s: only where it is needed

        fan_in, fan_out = fans(role, shape)
        size = max(fan_in, fan_out)
        check_room((4, size, size))  # both matrices in float64
        waves = scipy.fft.dct(np.eye(size), norm="ortho")[:, : min(fan_in, fan_out)]
        return jnp.asarray(waves if fan_in == size else waves.T, jnp.float32)


@dataclasses.dataclass(frozen=True)
class Sinusoidal(_Kernels):
    """Every attention and MLP kernel is the same deterministic table of sines for its size.

    W[i, j] = a sin((j + 1) (2π i / m + 2π / n)) for m inputs and n outputs, a chosen for the
    variance. The weights of unit j sum to zero, unless m divides its frequency j + 1: those are
    constant. That is the opposite of `MeanShift`.

    A square kernel is symmetric, and with the "glorot" variance W W is about m / (m − 2) · (I − R),
    R the permutation i → m − 2 − i. Units of frequencies f and m − f are each other's negatives, so
    that its rank is below m / 2 (95 for 192), and the last unit is zero. So if H·K = D,
    Σ_h W_Q W_Kᵀ = W_V W_out ≈ I − R: in value and out, the identity has the opposite sign to
    `Mimetic`.

    The paper also writes patch embedding and head, which this scheme doesn't know. A fused
    query, key and value count as three kernels, as in its code for nn.MultiheadAttention.

    Attributes:
        variance: the variance of the entries: "glorot", 2 / (inputs + outputs), or "he",
            2 / inputs; the released code changed from the first to the second after the paper
            appeared.

    Reference: Sinusoidal Initialization, Time for a New Start (Fernández-Hernández et al.,
    NeurIPS 2025), as in its released code (jmiravet/Sinusoidal-Initialization).
    """

    variance: Literal["glorot", "he"] = "glorot"

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        fan_in, fan_out = fans(role, shape)
        frequency = np.arange(1, fan_out + 1)
        # Whole turns are dropped before the sine, where float64 would lose digits to them.
        turns = np.outer(np.arange(fan_in), frequency) % fan_in / fan_in + frequency / fan_out
        waves = np.sin(2 * np.pi * (turns % 1))
        if np.abs(waves).max() < 1e-9:
            raise InputError(f"a sinusoidal {role} of {fan_in} x {fan_out} is zero")
        target = 2 / (fan_in + fan_out) if self.variance == "glorot" else 2 / fan_in
        return jnp.asarray(waves * math.sqrt(target / waves.var(ddof=1)), jnp.float32)
