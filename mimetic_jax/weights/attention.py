"""Query/key and value/out pairs whose products are a scaled identity plus noise."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.host.cores import concurrency
from mimetic_jax.weights.checks import (
    ANY_SIGN,
    NOT_NEGATIVE,
    POSITIVE,
    check_key,
    check_room,
    counts,
    number,
)
from mimetic_jax.weights.factor import Array, factorize

Noise = Literal["normal", "uniform"]
Orientation = Literal["paper", "port"]

# Concrete targets are drawn and factorized in chunks of this many bytes, over all tasks together.
CHUNK_BYTES = 2**30


def query_key(
    key: jax.Array,
    dim: int,
    num_heads: int,
    *,
    head_dim: int | None = None,
    num_kv_heads: int | None = None,
    alpha: float = 0.7,
    beta: float = 0.7,
    noise: Noise = "normal",
) -> tuple[jax.Array, jax.Array]:
    """Query and key kernels whose product is a scaled identity plus noise in every head.

    query[:, h] @ key[:, g].T = best rank-K approximation of A_g = α Z_g + β I, where head h
    reads key/value head g = h // (H / G), and Z_g is fresh D×D noise of variance 1/D.

    Args:
        key: a `jax.random` key; concrete or traced.
        dim: D, the model width.
        num_heads: H, the query heads.
        head_dim: K; defaults to D / H.
        num_kv_heads: G, a divisor of H; defaults to H. With G < H (grouped or multi-query
            attention) the noise is drawn per group and its query heads start equal, because
            one key can't match several targets.
        alpha: α ≥ 0, the noise.
        beta: β, the identity, of either sign.
        noise: "normal" (the paper) or "uniform" (the released port), of the same variance.

    Returns:
        query [D, H, K] and key [D, G, K], float32.

    Raises:
        InputError: if G doesn't divide H, or H doesn't divide D and K isn't given; if α < 0, a
            value isn't finite or beyond ±1e6, or α = β = 0 (query and key would be zero and get no
            gradient); if the arrays don't fit into memory.

    Example:
        >>> query, key = query_key(jax.random.key(0), dim=192, num_heads=3)
        >>> product = query[:, 0] @ key[:, 0].T
        >>> f"{product.diagonal().mean():.1f}, rank {jnp.linalg.matrix_rank(product)}"
        '0.4, rank 64'

    Reference: Mimetic Initialization of Self-Attention Layers, eqs. 5-7; α = 0 is its
    language setting.
    """
    check_key(key)
    dim, num_heads, head_dim, num_kv_heads = attention_sizes(dim, num_heads, head_dim, num_kv_heads)
    keys = jax.random.split(key, num_kv_heads)
    rank = min(dim, head_dim)
    left, right = _factors(keys, dim, rank, alpha, beta, noise)
    # Not a small number, since fold_in(key, 1) is the key of the second group.
    fill = jax.random.fold_in(key, 2**31)
    left_GxDxK, right_GxDxK = pad_columns(fill, left, right, head_dim)
    xp: Any = np if isinstance(left_GxDxK, np.ndarray) else jnp
    query_DxHxK = xp.repeat(xp.moveaxis(left_GxDxK, 0, 1), num_heads // num_kv_heads, axis=1)
    return jnp.asarray(query_DxHxK), jnp.asarray(xp.moveaxis(right_GxDxK, 0, 1))


def value_out(
    key: jax.Array,
    dim: int,
    num_heads: int,
    *,
    head_dim: int | None = None,
    num_kv_heads: int | None = None,
    alpha: float = 0.4,
    beta: float = -0.4,
    noise: Noise = "normal",
    orientation: Orientation = "paper",
) -> tuple[jax.Array, jax.Array]:
    """Value and out kernels whose joint product is a scaled identity plus noise, negative in β.

    Σ_h value[:, g(h)] @ out[h] = A = α Z + β I, one joint draw for all heads. With G·K < D it
    is the best rank-G·K approximation of A, each of the r = H / G heads of a group carrying
    1/r of it. With G·K > D the surplus value columns are noise and the surplus out rows zero,
    so that the product is A and no unit is dead.

    Heads are not exchangeable: they get the singular vectors in descending order.

    Args:
        key: a `jax.random` key; concrete or traced.
        dim: D, the model width.
        num_heads: H, the query heads.
        head_dim: K; defaults to D / H.
        num_kv_heads: G, a divisor of H; defaults to H.
        alpha: α ≥ 0, the noise.
        beta: β, signed: the paper's −β₂ I is a negative number here.
        noise: "normal" (the paper) or "uniform" (the released port), of the same variance.
        orientation: "paper", A = L R with value = L and out = R; or "port", value = Lᵀ and
            out = Rᵀ, whose product is (R L)ᵀ, as the structured paper's released code stores them
            for its mimetic rows: the same trace and eigenvalues, but a diagonal with a spread of
            0.24 instead of 0.03 (D = 192). Only to reproduce those rows; needs G·K = H·K = D.

    Returns:
        value [D, G, K] and out [H, K, D], float32.

    Raises:
        InputError: as `query_key`; or orientation "port" if value and out aren't square.

    Example:
        >>> value, out = value_out(jax.random.key(0), dim=192, num_heads=3)
        >>> product = value.reshape(192, 192) @ out.reshape(192, 192)
        >>> f"{product.diagonal().mean():.1f}"
        '-0.4'

    Reference: Mimetic Initialization of Self-Attention Layers, eqs. 2 and 4 (with Σ^½ on both
    sides, as its second half has it).
    """
    check_key(key)
    dim, num_heads, head_dim, num_kv_heads = attention_sizes(dim, num_heads, head_dim, num_kv_heads)
    width = num_kv_heads * head_dim
    if orientation not in ("paper", "port"):
        raise unknown("orientation", orientation, ("paper", "port"))
    if orientation == "port" and not dim == width == num_heads * head_dim:
        raise InputError(
            f'orientation "port" needs square value and out: dim {dim} is not num_heads '
            f"{num_heads} x head_dim {head_dim}, each with its own key/value head"
        )
    left, right = _factors(key[None], dim, min(dim, width), alpha, beta, noise)
    left_DxGK, right_DxGK = (factor[0] for factor in pad_columns(key, left, right, width))
    if orientation == "port":
        left_DxGK, right_DxGK = left_DxGK.T, right_DxGK.T
    xp: Any = np if isinstance(left_DxGK, np.ndarray) else jnp
    group = num_heads // num_kv_heads
    value_DxGxK = left_DxGK.reshape(dim, num_kv_heads, head_dim)
    out_GxKxD = right_DxGK.T.reshape(num_kv_heads, head_dim, dim) / group
    return jnp.asarray(value_DxGxK), jnp.asarray(xp.repeat(out_GxKxD, group, axis=0))


def _factors(
    keys: jax.Array,
    dim: int,
    rank: int,
    alpha: float,
    beta: float,
    noise: Noise,
) -> tuple[Array, Array]:
    """Factors [B, D, R] of αZ + βI with a fresh Z per key; at most a chunk of targets in memory."""
    alpha, beta = number("alpha", alpha, NOT_NEGATIVE), number("beta", beta, ANY_SIGN)
    known = not any(isinstance(constant, jax.core.Tracer) for constant in (alpha, beta))
    if known and max(alpha, abs(beta)) < POSITIVE.low:
        raise InputError(
            f"alpha {alpha:g} and beta {beta:g} are both 0, or too small for float32: both kernels "
            "would be zero and never learn"
        )
    if noise not in _DRAWS:
        raise unknown("noise", noise, _DRAWS)
    traced = isinstance(keys, jax.core.Tracer) or not known

    def chunk(keys: jax.Array) -> tuple[Array, Array]:
        drawn = _draw(keys, dim, noise)
        if traced:
            return factorize(alpha * drawn + beta * jnp.eye(dim)[None], rank)
        targets = np.asarray(drawn) * np.float32(alpha)
        targets[:, np.arange(dim), np.arange(dim)] += np.float32(beta)
        return factorize(targets, rank)

    if not isinstance(alpha, jax.core.Tracer) and alpha == 0:
        return _scaled_basis(len(keys), dim, rank, beta)
    step = max(1, CHUNK_BYTES // concurrency() // (4 * dim * dim))
    # Noise and targets of a chunk, the Gram matrix of one target and its copy, and both factors.
    check_room((2 * min(len(keys), step) + 2, dim, dim), (2 * len(keys), dim, rank))
    if traced:
        return jax.lax.map(lambda key: tuple(x[0] for x in chunk(key[None])), keys)
    if len(keys) <= step:
        return chunk(keys)
    parts = [chunk(keys[start : start + step]) for start in range(0, len(keys), step)]
    left, right = (np.concatenate(factors) for factors in zip(*parts, strict=True))
    return left, right


def _scaled_basis(batch: int, dim: int, rank: int, beta: float) -> tuple[Array, Array]:
    """Factors of βI, for which every orthonormal basis is optimal: the first coordinates, as
    LAPACK returns them."""
    basis = jnp.broadcast_to(jnp.eye(dim, rank, dtype=jnp.float32), (batch, dim, rank))
    scale = jnp.asarray(beta, jnp.float32)
    left = basis * jnp.sqrt(jnp.abs(scale))
    return left, left * jnp.sign(scale)


def pad_columns(key: jax.Array, left: Array, right: Array, width: int) -> tuple[Array, Array]:
    """Pad to `width` columns with noise on the left and zeros on the right: the same product."""
    batch, dim, rank = left.shape
    if width == rank:
        return left, right
    surplus = (batch, dim, width - rank)
    fill = jax.random.normal(jax.random.fold_in(key, 1), surplus, jnp.float32)
    fill *= jnp.sqrt(jnp.mean(jnp.square(jnp.asarray(left))))
    return (
        jnp.concatenate([jnp.asarray(left), fill], axis=-1),
        jnp.concatenate([jnp.asarray(right), jnp.zeros(surplus, jnp.float32)], axis=-1),
    )


_DRAWS: dict[str, Callable[..., jax.Array]] = {
    "normal": jax.random.normal,
    "uniform": functools.partial(jax.random.uniform, minval=-math.sqrt(3), maxval=math.sqrt(3)),
}


@functools.partial(jax.jit, static_argnames=("dim", "noise"))
def _draw(keys: jax.Array, dim: int, noise: Noise) -> jax.Array:
    """One D×D matrix per key, of independent entries with variance 1/D: [B] to [B, D, D]."""
    draw = functools.partial(_DRAWS[noise], shape=(dim, dim), dtype=jnp.float32)
    return jax.vmap(draw)(keys) / math.sqrt(dim)


def attention_sizes(
    dim: int, num_heads: int, head_dim: int | None, num_kv_heads: int | None
) -> tuple[int, int, int, int]:
    """D, H, K and G after checks; K defaults to D / H, and G to H."""
    num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    dim, num_heads, num_kv_heads = counts(dim=dim, num_heads=num_heads, num_kv_heads=num_kv_heads)
    if head_dim is None and dim % num_heads:
        raise InputError(f"num_heads {num_heads} does not divide dim {dim}; pass head_dim")
    (head_dim,) = counts(head_dim=dim // num_heads if head_dim is None else head_dim)
    if num_heads % num_kv_heads:
        raise InputError(f"num_kv_heads {num_kv_heads} does not divide num_heads {num_heads}")
    check_room((dim, num_heads, head_dim), (dim, num_kv_heads, head_dim))
    return dim, num_heads, head_dim, num_kv_heads
