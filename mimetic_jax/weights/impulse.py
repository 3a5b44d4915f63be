"""Convolution in attention maps: at the start, every head attends to one neighbor of each token.

The head's *offset* (m, n) names it: the token at row r and column q of the grid attends to
(r+m, q+n). The *impulse matrix* T is the zero-padded convolution with a filter that is 1 at the
offset and 0 elsewhere: rows of tokens whose target is outside the grid are zero.
"""

from __future__ import annotations

import math
import typing
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.typed import converted
from mimetic_jax.host.cores import limited_blas
from mimetic_jax.weights.attention import attention_sizes, pad_columns
from mimetic_jax.weights.checks import FILTER, POSITIVE, check_key, check_room, number, pair
from mimetic_jax.weights.factor import Array, factorize, signs, traced_eigh

Order = Literal["released", "random", "positive", "scattered"]

_NORM, _NORM_OF = 7.0, 64  # the released norm, of heads of width 64 in all ViTs of the paper

_SCATTER = 45  # a key of the permutations alone: every layer and every seed has the same

# Singular values of the position table below this fraction of the largest count as zero. Those
# used of a random table are far above it and those of sin-cos tables drop below it after the 17th;
# float32 still resolves its square, which is what a traced Gram matrix contains.
RCOND = 1e-3

# The released noise is N(0, 0.6²) truncated at ±2; here in standard deviations.
_CUT = 2 / 0.6

# Center, edges, corners: the order of the released code.
_NEAREST = ((0, 0), (-1, 0), (0, 1), (0, -1), (1, 0), (-1, -1), (-1, 1), (1, -1), (1, 1))


def offsets(kernel_size: int, num: int) -> np.ndarray:
    """Return the first offsets (row, column) of a filter, from its center outwards, [num, 2].

    Size 3 has the order of the released code, where larger sizes continue by distance from the
    center, row by row at equal distance. With more heads than offsets the list repeats.

    >>> offsets(3, num=4).tolist()
    [[0, 0], [-1, 0], [0, 1], [0, -1]]
    """
    half = _half(kernel_size)
    span = range(-half, half + 1)
    square = {(row, column) for row in span for column in span}
    outer = sorted(square - {*_NEAREST}, key=lambda at: (at[0] ** 2 + at[1] ** 2, at))
    ordered = [at for at in _NEAREST if at in square] + outer
    return np.array(ordered)[np.arange(num) % len(ordered)]


def random_offsets(key: jax.Array, kernel_size: int, num: int) -> jax.Array:
    """Offsets of a filter in random order, [num, 2]; none repeats before all have occurred.

    Structured Initialization for Vision Transformers, corollary 2 ("random impulse filters"); that
    no offset repeats is our choice.

    >>> drawn = random_offsets(jax.random.key(0), 3, num=9)
    >>> sorted(drawn.tolist()) == sorted(offsets(3, num=9).tolist())
    True
    """
    half = _half(kernel_size)
    cells = jax.random.permutation(key, kernel_size**2)[np.arange(num) % kernel_size**2]
    return jnp.stack(jnp.divmod(cells, kernel_size), axis=-1) - half


def impulse_matrices(grid: tuple[int, int], shifts: Array) -> Array:
    """Return the zero-padded convolutions with an impulse at each offset, as matrices [H, N, N].

    T_i[(r, q), (r+m, q+n)] = 1 for offset i = (m, n) if the target is inside the grid of N = h·w
    tokens: Structured Initialization for Vision Transformers, eqs. 2 and 8.

    >>> impulse_matrices((1, 3), np.array([[0, 1]]))[0]
    array([[0., 1., 0.],
           [0., 0., 1.],
           [0., 0., 0.]], dtype=float32)
    """
    h, w = grid
    count = h * w
    check_room((len(shifts), count, count))
    row, column = np.divmod(np.arange(count)[None], w)
    row, column = row + shifts[:, :1], column + shifts[:, 1:]
    inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
    target = row * w + column
    hit = inside[:, :, None] & (target[:, :, None] == np.arange(count)[None, None])
    return hit.astype(np.float32)


def impulse_query_key(
    key: jax.Array,
    position: Array,
    grid: tuple[int, int],
    num_heads: int,
    *,
    head_dim: int | None = None,
    num_kv_heads: int | None = None,
    kernel_size: int = 3,
    order: Order = "released",
    amplitude: float = 1000.0,
    noise: float = 1.8,
    norm: float | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Query and key kernels whose attention map at initialization is an impulse in every head.

    query[:, h] @ key[:, h].T ∝ P⁺ M_h P⁺ᵀ with M = amplitude · T + noise · Z where T is 0,
    P = LayerNorm(position) and P⁺ its pseudo-inverse of rank K, so that softmax(P Q Kᵀ Pᵀ / √K)
    ≈ T on positions alone. Only the ratio of amplitude to noise matters.

    The map is sharp if positions dominate the input of attention: the released code also
    multiplies the position table by 18 (`schemes.Impulse`), which hardly changes the kernels
    returned here. And it is as sharp as rank K allows: on 14×14 tokens the largest weight is at
    the offset in 99 of 100 rows for K = 64 and in every other row for K = 32.

    Args:
        key: a `jax.random` key; concrete or traced.
        position: the position table without class-token rows, [N, D]; concrete or traced.
        grid: (h, w) with h·w = N, row-major.
        num_heads: H.
        head_dim: K; defaults to D / H.
        num_kv_heads: G, a divisor of H; defaults to H. With G < H each group has one offset and
            its query heads start equal, since one key can't give several maps at rank K.
        kernel_size: side of the filters, odd.
        order: which filter each head (group) gets. "released": an impulse at the offsets of
            `offsets`, the same in every layer. "random": an impulse at offsets in random order,
            none of which repeats before all have occurred, as the paper's text has them.
            "scattered": the control of "released", whose heads attend to one token, too, but not to
            a neighbor: a permutation of the tokens follows the shift, a random one for each head
            that is the same in every layer and for every key. "positive": a random positive filter
            of sum one, entries u / Σ u, u uniform, where M = amplitude · entry. The paper calls
            that inefficient. On 14×14 tokens and K = 64 a row of the map is at a total variation
            distance of 0.77 from its filter, where it is 0.15 for an impulse.
        amplitude: the logits at the impulse.
        noise: standard deviation of the other logits, normal and truncated at ±3⅓ of it.
        norm: Frobenius norm of each head's query and of its key; by default 7 √(K / 64). Logits
            of random tokens have the standard deviation norm² / K, and the released 7 is of heads
            of 64: at K = 16 it would make rows attend to 5 of 64 tokens.

    Returns:
        query [D, H, K] and key [D, G, K], float32.

    Raises:
        InputError: if sizes don't fit, a constant isn't positive, or the numerical rank of the
            table is below K, as it is for sin-cos tables. The rank of a traced
            table can't be checked; there, directions too weak to invert are dropped. If none is
            left, as for a table of zeros, query is zero and key isn't.

    Example:
        >>> position = 0.02 * jax.random.normal(jax.random.key(0), (196, 192))
        >>> query, key = impulse_query_key(jax.random.key(1), position, (14, 14), num_heads=3)
        >>> tokens = np.asarray(layer_norm(position))
        >>> logits = (tokens @ query[:, 1]) @ (tokens @ key[:, 1]).T
        >>> int(logits[100].argmax())  # head 1 attends to the token above, 14 earlier
        86

    Reference: Structured Initialization for Vision Transformers, eqs. 9-14; constants, order
    of offsets, rank and padding are those of its released code.
    """
    check_key(key)
    grid = pair("the grid", grid)
    count = math.prod(grid)
    if position.ndim != 2 or position.shape[0] != count:
        raise InputError(
            f"a grid of {grid[0]}x{grid[1]} needs positions of shape [{count}, D], not "
            f"{tuple(position.shape)}"
        )
    _, num_heads, head_dim, groups = attention_sizes(
        position.shape[1], num_heads, head_dim, num_kv_heads
    )
    amplitude = number("amplitude", amplitude, POSITIVE)
    noise = number("noise", noise, POSITIVE)
    norm = (
        _NORM * math.sqrt(head_dim / _NORM_OF) if norm is None else number("norm", norm, POSITIVE)
    )
    check_room((4, groups, count, count))  # the noise, the impulses, and both together in float64
    key_offsets, key_noise, key_fill = jax.random.split(key, 3)
    targets: Array
    if (fixed := fixed_targets(order, grid, kernel_size, groups)) is not None:
        targets = fixed
    elif order == "random":
        shifts = _host(random_offsets(key_offsets, kernel_size, groups))
        targets = impulse_matrices(grid, shifts)
    elif order == "positive":
        targets = _positive_matrices(key_offsets, grid, kernel_size, groups)
    else:
        raise unknown("order", order, typing.get_args(Order))
    shape = (groups, count, count)
    drawn = jax.random.truncated_normal(key_noise, -_CUT, _CUT, shape, jnp.float32)
    # M is noise where the map is 0 (eq. 10, as released).
    others = noise * _host(drawn) * (targets == 0).astype(drawn.dtype)
    left_GxDxR, right_GxDxR = _unit_factors(position, amplitude * targets + others, head_dim)
    padded = pad_columns(key_fill, norm * left_GxDxR, norm * right_GxDxR, head_dim)
    query_DxGxK, key_DxGxK = (jnp.asarray(kernel.swapaxes(0, 1), jnp.float32) for kernel in padded)
    return jnp.repeat(query_DxGxK, num_heads // groups, axis=1), key_DxGxK


def fixed_targets(order: Order, grid: tuple[int, int], kernel_size: int, num: int) -> Array | None:
    """Return where heads attend, [num, N, N]; None if a key of `jax.random` decides.

    >>> fixed_targets("released", (1, 3), 3, num=1)[0].tolist()  # the first offset is the center
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if order not in ("released", "scattered"):
        return None
    targets = impulse_matrices(grid, offsets(kernel_size, num))
    return _scattered(targets) if order == "scattered" else targets


def _scattered(targets: Array) -> Array:
    """Maps [H, N, N] whose columns are permuted, each head's by a fixed random order of its own."""
    count = targets.shape[-1]
    numbers = (
        np.random.Philox(key=[_SCATTER, head]).random_raw(count) for head in range(len(targets))
    )
    orders = np.stack([np.argsort(raw, kind="stable") for raw in numbers])
    return np.take_along_axis(targets, orders[:, None], axis=-1)


def _positive_matrices(key: jax.Array, grid: tuple[int, int], kernel_size: int, num: int) -> Array:
    """The zero-padded convolutions with `num` random positive filters of sum one, [num, N, N]."""
    shifts = offsets(kernel_size, kernel_size**2)
    filters = _host(jax.random.uniform(key, (num, len(shifts)), jnp.float32))
    filters = filters / filters.sum(axis=1, keepdims=True)
    impulses = impulse_matrices(grid, shifts)
    with jax.default_matmul_precision("highest"):
        return (filters @ impulses.reshape(len(shifts), -1)).reshape(num, *impulses.shape[1:])


def _unit_factors(position: Array, logits: Array, rank: int) -> tuple[Array, Array]:
    """Factors [G, D, R] of P⁺ M_g P⁺ᵀ, each of Frobenius norm 1 (eqs. 11-14).

    P⁺ = U Wᵀ, so that the D×D matrix is U (Wᵀ M W) Uᵀ, and only the R×R core is factorized:
    in float64 on the host, or in float32 at full precision in the caller's program.
    """
    # One BLAS thread on the host, since waiting threads spin: see `limited_blas`.
    with jax.default_matmul_precision("highest"), limited_blas():
        U_DxR, W_NxR = _pseudo_inverse(layer_norm(position), rank)
        core_GxRxR = W_NxR.T @ (_float64(logits) @ W_NxR)
        left_GxRxR, right_GxRxR = map(_unit, factorize(core_GxRxR, U_DxR.shape[1]))
        left_GxDxR, right_GxDxR = U_DxR @ left_GxRxR, U_DxR @ right_GxRxR
        fixed = signs(right_GxDxR)  # whatever the axes U are
        return left_GxDxR * fixed, right_GxDxR * fixed


def layer_norm(position: Array) -> Array:
    """The pseudo-input P̂: LayerNorm without scale and shift, as the first block would apply it."""
    position = _float64(position)
    centered = position - position.mean(axis=1, keepdims=True)
    return centered / (position.var(axis=1, keepdims=True) + 1e-5) ** 0.5


def _pseudo_inverse(inputs: Array, rank: int) -> tuple[Array, Array]:
    """U [D, R] and W [N, R] of the pseudo-inverse P⁺ = U Wᵀ of P̂ [N, D], truncated to rank R."""
    dim = inputs.shape[1]
    gram = inputs.T @ inputs
    traced = isinstance(gram, jax.core.Tracer)
    if traced:
        basis = traced_eigh(gram)[1][:, -rank:]
    else:
        import scipy.linalg  # takes 0.1 s: only where it is needed

        leading = (max(0, dim - rank), dim - 1)
        basis = scipy.linalg.eigh(gram, subset_by_index=leading)[1]
    image = inputs @ basis
    power = (image**2).sum(axis=0, keepdims=True)
    strong = power > RCOND**2 * power.max()
    if traced:
        return basis, jnp.where(strong, image / power, 0)
    if (found := strong.sum()) < rank:
        raise InputError(
            f"the position table has numerical rank {found} and {rank} is needed: use random "
            "positions"
        )
    return basis, image / power


def _unit(factors: Any) -> Any:
    norms = (factors**2).sum(axis=(1, 2), keepdims=True) ** 0.5
    # The left factor of a traced table without directions is zero.
    return factors / norms.clip(min=np.finfo(np.float32).tiny ** 0.5)


def _float64(array: Array) -> Any:
    # The Gram matrix squares condition numbers of hundreds: float32 would leave three digits,
    # and on the host double precision costs nothing.
    traced = isinstance(array, jax.core.Tracer)
    return array.astype(jnp.float32) if traced else np.asarray(array, np.float64)


def _host(array: jax.Array) -> Array:
    return array if isinstance(array, jax.core.Tracer) else np.asarray(array)


def _half(kernel_size: int) -> int:
    size: int = converted("kernel_size", Annotated[int, FILTER], kernel_size)
    return size // 2
