"""Other people's initializations, to compare a scheme with.

Those for attention set its biases to zero, as their papers do. LayerScale changes the model and
isn't here.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes.base import attention_kernels
from mimetic_jax.schemes.kernels import Shape, _Kernels, fans, uniform

_LAST_OF_MLPS = frozenset({"mlp_out", "token_out"})


@dataclasses.dataclass(frozen=True)
class Zero(_Kernels):
    """ZerO on attention: W_Q = 0, W_K = W_V = I, W_out = 0.

    All heads together are the identity: a partial one if G·K < D, and I · H_p / √p · I if
    G·K > D, with H_p the Hadamard matrix of the next power of two p ≥ G·K, cut to shape. The
    released code has no transformer: Q and K follow the remark in Mimetic Initialization of
    Self-Attention Layers, out the rule that a residual branch ends in zero. Nothing is random.

    Reference: ZerO Initialization (Zhao, Schäfer and Anandkumar 2021).
    """

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return attention_kernels(roles)

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        if role in ("query", "out"):
            return jnp.zeros(shape)
        return _partial_hadamard(*fans(role, shape))


@dataclasses.dataclass(frozen=True)
class TFixup(_Kernels):
    """T-Fixup on attention and MLPs: Xavier's kernels, scaled down with depth.

    Query and key: Xavier uniform of gain 1/√2. Value, out and both MLP kernels: of gain
    0.67 L^−¼, L the number of blocks of the kind. LayerNorms and embeddings are unchanged; the
    paper drops LayerNorm and warm-up, too.

    Attributes:
        decoder: whether the gain is that of a decoder, (9 L)^−¼.

    Reference: Improving Transformer Optimization Through Better Initialization (Huang et al.
    2020), as in its released code.
    """

    depends_on_layer: ClassVar[bool] = True
    decoder: bool = False

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return attention_kernels(roles) | (roles & {"mlp_in", "mlp_out"})

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        fan_in, fan_out = fans(role, shape)
        if role in ("query", "key"):
            return uniform(key, shape, 1 / math.sqrt(fan_in + fan_out))
        gain = (9 * num_layers) ** -0.25 if self.decoder else 0.67 * num_layers**-0.25
        return uniform(key, (fan_in, fan_out), gain * math.sqrt(2 / (fan_in + fan_out)))


@dataclasses.dataclass(frozen=True)
class ZeroOut(_Kernels):
    """Zero last kernels of residual branches, which start as the identity; other kernels stay.

    Attributes:
        mlp: whether the last kernels of MLPs, over channels and over tokens, are zero.
        attention: whether those of attention are.

    Reference: the nanoGPT speed-run (modded-nanogpt, pull request 214); the idea is that of Fixup
    Initialization (Zhang, Dauphin and Ma 2019).
    """

    gated: ClassVar[bool] = True
    mlp: bool = False
    attention: bool = True

    def validate(self) -> None:
        if not (self.mlp or self.attention):
            raise InputError("ZeroOut(mlp=False, attention=False) would write nothing")

    def check_tree(self, present: frozenset[str], written: frozenset[str]) -> None:
        if self.mlp and written.isdisjoint(_LAST_OF_MLPS):
            raise InputError(
                "ZeroOut(mlp=True) finds no MLP: put mlp_rules(first=…, second=…) in front of the "
                "rules, or take ZeroOut() for attention alone"
            )

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        mlps = roles & _LAST_OF_MLPS if self.mlp else frozenset()
        attention = attention_kernels(roles) & {"out"} if self.attention else frozenset()
        return attention | mlps

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        return jnp.zeros(shape)


def _partial_hadamard(fan_in: int, fan_out: int) -> jax.Array:
    """ZerO's kernel.

    >>> _partial_hadamard(2, 4)
    Array([[ 0.5,  0.5,  0.5,  0.5],
           [ 0.5, -0.5,  0.5, -0.5]], dtype=float32)
    """
    if fan_out <= fan_in:
        return jnp.eye(fan_in, fan_out, dtype=jnp.float32)
    # Sylvester's H[i, j] is −1 to the power of the number of bits set in both i and j.
    common = jnp.arange(fan_in)[:, None] & jnp.arange(fan_out)[None]
    signs = 1 - 2 * (jax.lax.population_count(common) & 1)
    return signs.astype(jnp.float32) * 2.0 ** (-(fan_out - 1).bit_length() / 2)
