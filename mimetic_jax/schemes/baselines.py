"""Controls to compare a scheme with: matched noise, and other people's initializations.

Those for attention set its biases to zero, as their papers do. LayerScale changes the model and
isn't here.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TypeAlias

import jax
import jax.numpy as jnp

from mimetic_jax import weights
from mimetic_jax.schemes.base import Block, Context, Scheme, attention_kernels
from mimetic_jax.weights.baselines import semi_orthogonal, tfixup, uniform_noise, zero_init

Shape: TypeAlias = tuple[int, ...]

_KERNELS = ("query", "key", "value", "out", "mlp_in", "mlp_out")


@dataclasses.dataclass(frozen=True)
class NormMatched(Scheme):
    """The control: independent normal noise with the Frobenius norm that `like` gives each kernel.

    Attributes:
        like: the scheme whose norms are matched. Kernels that it sets to zero become zero.

    Example:
        >>> from mimetic_jax.schemes import Mimetic
        >>> sorted(NormMatched(Mimetic()).writes(frozenset({"query", "key", "position"})))
        ['key', 'query']
    """

    like: Scheme

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return self.like.writes(roles)

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        target = self.like(key, block, context)
        # Not `key` itself: the noise must be independent of the draw whose norm it matches.
        keys = jax.random.split(jax.random.fold_in(key, 1), len(target))
        return {
            role: weights.norm_matched(role_key, target[role])
            for role_key, role in zip(keys, sorted(target), strict=True)
        }


@dataclasses.dataclass(frozen=True)
class _Kernels(Scheme):
    """Base of schemes that draw each kernel separately and set the kernels' biases to zero."""

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        """The roles to draw."""
        raise NotImplementedError

    def _draw(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        """One kernel, with its heads flattened or not."""
        raise NotImplementedError

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        kernels = self._kernels(roles)
        return kernels | (roles & {f"{role}_bias" for role in kernels})

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        # One key per role, present or not, so that no kernel depends on which others exist.
        keys = dict(zip(_KERNELS, jax.random.split(key, len(_KERNELS)), strict=True))
        new = {}
        for role in self.writes(frozenset(block)):
            shape = block.shapes[role]
            if role.endswith("_bias"):
                new[role] = jnp.zeros(shape)
            else:
                new[role] = self._draw(keys[role], role, shape, context.num_layers).reshape(shape)
        return new


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

    def _draw(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        return jnp.zeros(shape) if role in ("query", "out") else zero_init(*_fans(role, shape))


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

    decoder: bool = False

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return attention_kernels(roles) | (roles & {"mlp_in", "mlp_out"})

    def _draw(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        fans = _fans(role, shape)
        if role in ("query", "key"):
            return uniform_noise(key, shape, 1 / math.sqrt(sum(fans)))
        return tfixup(key, *fans, num_layers, decoder=self.decoder)


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

    def _draw(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        return jnp.zeros(shape)


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

    scale: float = 0.5

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return attention_kernels(roles)

    def _draw(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        D = shape[-1] if role == "out" else shape[0]
        return uniform_noise(key, shape, self.scale / math.sqrt(D))


@dataclasses.dataclass(frozen=True)
class Conditioned(_Kernels):
    """Attention kernels of condition number 1: W_Q and W_K semi-orthogonal, W_V an identity.

    The singular values are 1 for all heads side by side, [D, H·K] and [D, G·K], and if H·K ≤ D for
    every head [D, K]: head h of the value reads the K coordinates from h·K on. Out is unchanged.
    Only summaries of the submission were available: it may build heads one by one, every value
    head reading the same first K coordinates.

    Example:
        >>> sorted(Conditioned().writes(frozenset({"query", "key", "value", "out", "out_bias"})))
        ['key', 'query', 'value']

    Reference: Conditioned Initialization for Attention (ICLR 2026 submission).
    """

    def _kernels(self, roles: frozenset[str]) -> frozenset[str]:
        return attention_kernels(roles) & {"query", "key", "value"}

    def _draw(self, key: jax.Array, role: str, shape: Shape, num_layers: int) -> jax.Array:
        fans = _fans(role, shape)
        return jnp.eye(*fans) if role == "value" else semi_orthogonal(key, *fans)


def _fans(role: str, shape: Shape) -> tuple[int, int]:
    """Rows and columns of a kernel whose heads are flattened."""
    split = -1 if role == "out" else 1
    return math.prod(shape[:split]), math.prod(shape[split:])
