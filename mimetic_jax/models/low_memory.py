"""GELU, normalization and position tables that keep and move few bytes in training.

Accelerators train small models at the speed of their memory, not of their arithmetic. Each function
has the value and the gradient of the plain formula; what the backward pass keeps differs, and the
form that XLA compiles.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
    """x Φ(x), the exact GELU, in at least float32; the backward pass keeps x alone.

    `jax.nn.gelu` keeps four arrays of the size of x.
    """
    wide = _wide(x)
    return (0.5 * wide * (1 + jax.lax.erf(math.sqrt(0.5) * wide))).astype(x.dtype)


def _gelu_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return gelu(x), x


def _gelu_backward(x: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    wide = _wide(x)
    # Φ(x) as 1 − Φ(−x): XLA would find the forward pass's own erf and keep it, in float32.
    below = 0.5 - 0.5 * jax.lax.erf(-math.sqrt(0.5) * wide)
    density = jnp.exp(-0.5 * wide * wide) / math.sqrt(2 * math.pi)
    return (((below + wide * density) * gradient).astype(x.dtype),)


gelu.defvjp(_gelu_forward, _gelu_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def layer_norm(
    x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float, dtype: Any
) -> jax.Array:
    """Return (x − mean) / √(variance + ε) ∘ scale + bias over the last axis; x alone is kept.

    Mean and variance, in at least float32, are computed again for the backward pass, where an
    accelerator reads x anyway.
    """
    mean, inverse = _first(_statistics(x, epsilon))
    return ((_wide(x) - mean) * inverse * scale + bias).astype(dtype)


def _layer_norm_forward(
    x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float, dtype: Any
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    return layer_norm(x, scale, bias, epsilon, dtype), (x, scale, bias)


def _layer_norm_backward(
    epsilon: float,
    dtype: Any,
    kept: tuple[jax.Array, jax.Array, jax.Array],
    gradient: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    x, scale, bias = kept
    # Of −x: XLA would find the forward pass's own statistics, keep them, and compute both with one
    # more pass over x.
    mean, inverse = _first(_statistics(-x, epsilon))
    normal, wide = (_wide(x) + mean) * inverse, _wide(gradient)
    tokens = tuple(range(x.ndim - 1))
    sums = (wide * normal).sum(tokens), wide.sum(tokens)
    scaled = wide * scale
    along = (scaled * normal).mean(-1, keepdims=True)
    along, mean_gradient = _first((along, scaled.mean(-1, keepdims=True)))
    to_x = inverse * (scaled - mean_gradient - normal * along)
    return to_x.astype(x.dtype), sums[0].astype(scale.dtype), sums[1].astype(bias.dtype)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


class LayerNorm(nn.Module):
    """`layer_norm` with the parameters and initial values of `nn.LayerNorm`."""

    epsilon: float = 1e-6
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., D] from [..., D]."""
        scale: Any = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias: Any = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        return layer_norm(x, scale, bias, self.epsilon, self.dtype)


def _statistics(x: jax.Array, epsilon: float) -> tuple[jax.Array, jax.Array]:
    """The mean over the last axis, and one over the standard deviation."""
    wide = _wide(x)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return mean, jax.lax.rsqrt(variance + epsilon)


def _first(per_token: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Numbers of each token, computed before any kernel that uses them.

    XLA on GPUs would compute them in the kernel that uses them, which then takes one token at a
    time: slower than two kernels that each read the activations. Sums over tokens would compute
    them again, in a kernel that writes its product in float32.
    """
    return jax.lax.optimization_barrier(per_token)


@jax.custom_vjp
def add_table(x: jax.Array, table: jax.Array) -> jax.Array:
    """x [B, N, D] + table [1, N, D] in the dtype of x; the table's gradient is a product with ones.

    As a sum over the batch it would make XLA on GPUs choose layouts with the batch as the last axis
    for the activations of the whole model, and transpose them at every product.
    """
    return x + table.astype(x.dtype)


def _table_forward(x: jax.Array, table: jax.Array) -> tuple[jax.Array, jax.Array]:
    return add_table(x, table), jnp.zeros((0,), table.dtype)


def _table_backward(like: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows = gradient.reshape(len(gradient), -1)
    wide = jnp.promote_types(rows.dtype, jnp.float32)
    total = jnp.matmul(
        jnp.ones((1, len(rows)), rows.dtype),
        rows,
        # A wide product would be rounded to tensor cores' TF32; half precision is exact in them.
        precision="highest" if rows.dtype == wide else None,
        preferred_element_type=wide,
    )
    return gradient, total.reshape(1, *gradient.shape[1:]).astype(like.dtype)


add_table.defvjp(_table_forward, _table_backward)


def _wide(x: jax.Array) -> Any:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
