"""Schemes whose kernels are bases: orthonormal, coordinates, cosines, sines.

They set the biases of the kernels that they write to zero.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes.base import attention_kernels
from mimetic_jax.schemes.kernels import Shape, _Kernels, dense_kernels, fans
from mimetic_jax.weights.bases import Variance, dct, semi_orthogonal, sinusoidal
from mimetic_jax.weights.checks import POSITIVE


@dataclasses.dataclass(frozen=True)
class Orthogonal(_Kernels):
    """Every attention and MLP kernel is a random semi-orthogonal matrix, all its heads together.

    W = g·U with UᵀU = I or U Uᵀ = I, independent for every kernel.

    Attributes:
        gain: g, each singular value.

    Example:
        >>> sorted(Orthogonal().writes(frozenset({"mlp_in", "mlp_in_bias", "mlp_out"})))
        ['mlp_in', 'mlp_in_bias', 'mlp_out']

    Reference: Exact Solutions to the Nonlinear Dynamics of Learning in Deep Linear Neural Networks
    (Saxe, McClelland and Ganguli 2014).
    """

    gain: Annotated[float, POSITIVE] = 1.0

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return dense_kernels(roles)

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

    Example:
        >>> sorted(Conditioned().writes(frozenset({"query", "key", "value", "out", "out_bias"})))
        ['key', 'query', 'value']

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

    W[i, k] = c_k cos(π (2i + 1) k / 2D): head h reads a band of K frequencies of the channels, the
    same in every layer. Other kernels are unchanged.

    The paper transforms one kernel at a time, with the largest gain for the key: ImageNet
    Swin-T 81.47 to 81.73, ViT-B/32 73.12 to 73.61. In the released code of its Swins the model's
    own initialization runs after this one and overwrites it; its ViT keeps it.

    Attributes:
        query, key, value: whether the kernel is written.

    Example:
        >>> sorted(DCT().writes(frozenset({"query", "key", "value", "out"})))
        ['key']

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
        return dct(*fans(role, shape))


@dataclasses.dataclass(frozen=True)
class Sinusoidal(_Kernels):
    """Every attention and MLP kernel is the same deterministic table of sines for its size.

    The weights of each unit sum to zero, except in the few units whose frequency is a multiple of
    the number of inputs: the opposite of `MeanShift`. Where H·K = D, Σ_h W_Q W_Kᵀ = W_V W_out
    ≈ I − R with R a reversal of the channels: in value and out, the identity has the opposite sign
    to `Mimetic`.

    The paper also writes patch embedding and head, which this scheme doesn't know. A fused
    query, key and value count as three kernels, as in its code for nn.MultiheadAttention. See
    `weights.sinusoidal` for the formula and its rank.

    Attributes:
        variance: of the entries: "glorot", 2 / (inputs + outputs), or "he", 2 / inputs; the
            released code changed from the first to the second after the paper appeared.

    Example:
        >>> sorted(Sinusoidal().writes(frozenset({"query", "key", "mlp_in", "mlp_in_bias"})))
        ['key', 'mlp_in', 'mlp_in_bias', 'query']

    Reference: Sinusoidal Initialization, Time for a New Start (Fernández-Hernández et al.,
    NeurIPS 2025), as in its released code (jmiravet/Sinusoidal-Initialization).
    """

    variance: Variance = "glorot"

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return dense_kernels(roles)

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        return sinusoidal(*fans(role, shape), self.variance)
