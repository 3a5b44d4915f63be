"""The self-attention paper's simplest construction: one normal matrix for both kernels of a pair.

It motivates the method. Its ratio of identity to noise is fixed, which is why `query_key` and
`value_out` use singular vectors instead.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from mimetic_jax.weights.attention import attention_sizes
from mimetic_jax.weights.checks import check_key


def same_noise_query_key(
    key: jax.Array,
    dim: int,
    num_heads: int,
    *,
    head_dim: int | None = None,
    num_kv_heads: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Query and key kernels that are the same normal noise in every head.

    query[:, h] = key[:, g] = Z_g with entries of variance 1/K, so that query[:, h] @ key[:, g].T
    = Z_g Z_gᵀ has a diagonal of 1 ± √(2/K) and off-diagonal entries of standard deviation 1/√K.

    Args:
        key: a `jax.random` key; concrete or traced.
        dim: D, the model width.
        num_heads: H, the query heads.
        head_dim: K; D / H unless given.
        num_kv_heads: G, a divisor of H; H unless given. The query heads of a group start equal.

    Returns:
        query [D, H, K] and key [D, G, K], float32.

    Raises:
        InputError: if G doesn't divide H, or H doesn't divide D and K isn't given.

    Example:
        >>> query, key = same_noise_query_key(jax.random.key(0), dim=192, num_heads=3)
        >>> product = query[:, 0] @ key[:, 0].T
        >>> f"{product.diagonal().mean():.1f}, noise {product[0, 1:].std():.1f}"
        '1.0, noise 0.1'

    Reference: Mimetic Initialization of Self-Attention Layers, section 4.
    """
    check_key(key)
    dim, num_heads, head_dim, num_kv_heads = attention_sizes(dim, num_heads, head_dim, num_kv_heads)
    drawn = jax.random.normal(key, (dim, num_kv_heads, head_dim), jnp.float32) / math.sqrt(head_dim)
    return jnp.repeat(drawn, num_heads // num_kv_heads, axis=1), drawn


def same_noise_value_out(
    key: jax.Array,
    dim: int,
    num_heads: int,
    *,
    head_dim: int | None = None,
    num_kv_heads: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Value and out kernels that are the same normal noise, with opposite signs.

    Σ_h value[:, g(h)] @ out[h] = −Z Zᵀ, Z [D, G·K] with entries of variance 1/(G·K): the diagonal
    is −1 on average. Each of the r = H / G heads of a group carries 1/r of its part.

    Args:
        key: a `jax.random` key; concrete or traced.
        dim: D, the model width.
        num_heads: H, the query heads.
        head_dim: K; D / H unless given.
        num_kv_heads: G, a divisor of H; H unless given.

    Returns:
        value [D, G, K] and out [H, K, D], float32.

    Raises:
        InputError: if G doesn't divide H, or H doesn't divide D and K isn't given.

    Example:
        >>> value, out = same_noise_value_out(jax.random.key(0), dim=192, num_heads=3)
        >>> product = value.reshape(192, 192) @ out.reshape(192, 192)
        >>> f"{product.diagonal().mean():.1f}"
        '-1.0'

    Reference: Mimetic Initialization of Self-Attention Layers, section 4.
    """
    check_key(key)
    dim, num_heads, head_dim, num_kv_heads = attention_sizes(dim, num_heads, head_dim, num_kv_heads)
    width, group = num_kv_heads * head_dim, num_heads // num_kv_heads
    value = jax.random.normal(key, (dim, num_kv_heads, head_dim), jnp.float32) / math.sqrt(width)
    out = -jnp.repeat(value.transpose(1, 2, 0), group, axis=0) / group
    return value, out
