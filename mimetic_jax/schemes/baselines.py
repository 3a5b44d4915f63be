"""Other people's initializations, to compare a scheme with.

Those for attention set its biases to zero, as their papers do. LayerScale changes the model and
isn't here.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp

from mimetic_jax.schemes.base import attention_kernels
from mimetic_jax.schemes.kernels import OUTPUTS, Shape, _Kernels, dense_kernels, fans
from mimetic_jax.weights.baselines import padded_identity, tfixup, uniform_noise, zero_init
from mimetic_jax.weights.checks import NOT_NEGATIVE


@dataclasses.dataclass(frozen=True)
class Zero(_Kernels):
    """ZerO on attention: W_Q = 0, W_K = W_V = I, W_out = 0.

    All heads together are the identity, or `weights.baselines.zero_init` where G·K isn't D. The
    released code has no transformer: Q and K follow the remark in Mimetic Initialization of
    Self-Attention Layers, out the rule that a residual branch ends in zero.

    Example:
        >>> sorted(Zero().writes(frozenset({"query", "key", "key_bias", "position"})))
        ['key', 'key_bias', 'query']

    Reference: ZerO Initialization (Zhao, Schäfer and Anandkumar 2021).
    """

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return attention_kernels(roles)

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        return jnp.zeros(shape) if role in ("query", "out") else zero_init(*fans(role, shape))


@dataclasses.dataclass(frozen=True)
class TFixup(_Kernels):
    """T-Fixup on attention and MLPs: Xavier's kernels, scaled down with depth.

    Query and key: Xavier uniform of gain 1/√2. Value, out and both MLP kernels: of gain
    0.67 L^−¼, L the number of blocks of the kind. LayerNorms stay, embeddings are unchanged.

    Attributes:
        decoder: whether to use the decoder's gain (9 L)^−¼ instead.

    Example:
        >>> sorted(TFixup().writes(frozenset({"mlp_in", "mlp_in_bias", "mlp_out"})))
        ['mlp_in', 'mlp_in_bias', 'mlp_out']

    Reference: Improving Transformer Optimization Through Better Initialization (Huang et al.
    2020).
    """

    by_depth: ClassVar[bool] = True
    decoder: bool = False

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return attention_kernels(roles) | (roles & {"mlp_in", "mlp_out"})

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        fan_in, fan_out = fans(role, shape)
        if role in ("query", "key"):
            return uniform_noise(key, shape, 1 / math.sqrt(fan_in + fan_out))
        return tfixup(key, fan_in, fan_out, num_layers, decoder=self.decoder)


@dataclasses.dataclass(frozen=True)
class ZeroOut(_Kernels):
    """Zero out kernels: each attention layer starts as the identity. Other kernels stay.

    Example:
        >>> sorted(ZeroOut().writes(frozenset({"query", "key", "value", "out", "out_bias"})))
        ['out', 'out_bias']

    Reference: the baseline of the nanoGPT speed-run (modded-nanogpt, pull request 214).
    """

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return attention_kernels(roles) & {"out"}

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        return jnp.zeros(shape)


@dataclasses.dataclass(frozen=True)
class ZeroOutputs(_Kernels):
    """Zero last kernels of all residual branches: attention and MLPs start as the identity.

    `ZeroOut` does that to attention alone. In the nanoGPT speed-run the other kernels are uniform,
    of standard deviation ½ D^−½: `(Independent(std=0.5, uniform=True), ZeroOutputs())`.

    Example:
        >>> sorted(ZeroOutputs().writes(frozenset({"query", "out", "mlp_in", "mlp_out"})))
        ['mlp_out', 'out']

    Reference: the nanoGPT speed-run (modded-nanogpt), its zero-initialized projections; the idea is
    that of Fixup Initialization (Zhang, Dauphin and Ma 2019).
    """

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return dense_kernels(roles) & OUTPUTS

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        return jnp.zeros(shape)


@dataclasses.dataclass(frozen=True)
class IDInit(_Kernels):
    """Padded identities, and nearly zero ones where residual branches end.

    W[i, j] = τ where i ≡ j modulo min(rows, columns), else 0: the identity, repeated along the
    longer axis. The last kernel of a branch has ε instead of τ. Nothing is random.

    The paper's convolutions and its loosened identity, with noise of 1e-6, aren't here.

    Attributes:
        tau: τ.
        epsilon: ε; above 0, so that no unit starts dead.

    Example:
        >>> sorted(IDInit().writes(frozenset({"mlp_in", "mlp_in_bias", "mlp_out"})))
        ['mlp_in', 'mlp_in_bias', 'mlp_out']

    Reference: IDInit: A Universal and Stable Initialization Method for Neural Network Training (Pan
    et al., ICLR 2025), IDI and IDIZ; as summaries of it describe them, the code wasn't available.
    """

    tau: Annotated[float, NOT_NEGATIVE] = 1.0
    epsilon: Annotated[float, NOT_NEGATIVE] = 1e-6

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return dense_kernels(roles)

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        scale = self.epsilon if role in OUTPUTS else self.tau
        return scale * padded_identity(*fans(role, shape))


@dataclasses.dataclass(frozen=True)
class UniformAttention(_Kernels):
    """Query, key, value and out all uniform, of standard deviation ½ D^−½.

    Attributes:
        scale: the ½.

    Example:
        >>> sorted(UniformAttention().writes(frozenset({"query", "key", "value", "out"})))
        ['key', 'out', 'query', 'value']

    Reference: the final choice of the nanoGPT speed-run (modded-nanogpt, the commit after pull
    request 214), after it had tried the mimetic value and out.
    """

    scale: Annotated[float, NOT_NEGATIVE] = 0.5

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return attention_kernels(roles)

    def _kernel(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        D = shape[-1] if role == "out" else shape[0]
        return uniform_noise(key, shape, self.scale / math.sqrt(D))
