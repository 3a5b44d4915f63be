"""Balanced factors of target matrices: A ≈ left @ right.T, the best of rank K or exact.

The leading right singular vectors V of A are the leading eigenvectors of the Gram matrix
AᵀA, and `left = A V Σ^-½, right = V Σ^½` with Σ = ‖A V‖ per column. This needs no SVD: the
best rank-K product costs a partial eigensolve, and at full rank the product A V Vᵀ is A to
float precision, however small the smallest singular values are.

Two routes give the same products. *Concrete* arrays go to LAPACK on the host, outside XLA:
LAPACK calls inside XLA:CPU can wait for threads of the very pool that they fill, and hang.
*Traced* arrays (a caller's own `jit`, `vmap`, `eval_shape`) stay in the program, with one
unbatched LAPACK call at a time, which can't hang.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.host.cores import limit_blas_of_virtual_devices, limited_blas, on_cores
from mimetic_jax.host.lapack import leading_eigenvectors

Array: TypeAlias = jax.Array | np.ndarray

_LARGEST = 1e9
"""Entries whose squares and their sums float32 holds."""


def factorize(targets: Array, rank: int) -> tuple[Array, Array]:
    """Balanced factors of the best rank-R approximation of each matrix.

    left_b @ right_b.T = best rank-R approximation of A_b, with column norms √σ_i in both
    factors and columns in descending order of σ, each with the sign of `signs` in the right factor.
    For close singular values the columns themselves depend on the processor and the route.

    Args:
        targets: the matrices A, [B, D, D] float32; concrete or traced.
        rank: R, 1 ≤ R ≤ D. With R = D the product is A itself.

    Returns:
        left [B, D, R] and right [B, D, R] (NumPy arrays if `targets` is concrete).

    Raises:
        InputError: if the targets are not square or (if concrete) not finite, or the rank is out of
            range.

    Example:
        >>> targets = np.eye(4, dtype=np.float32)[None] * np.array([4., 3., 2., 1.], np.float32)
        >>> left, right = factorize(targets, rank=2)
        >>> np.round(left[0] @ right[0].T).diagonal()
        array([4., 3., 0., 0.], dtype=float32)

    Reference: Mimetic Initialization of Self-Attention Layers, eqs. 5-7.
    """
    if targets.ndim != 3 or targets.shape[1] != targets.shape[2]:
        raise InputError(f"targets must have shape [B, D, D], not {tuple(targets.shape)}")
    dim = targets.shape[-1]
    if not 1 <= rank <= dim:
        raise InputError(f"rank {rank} is not between 1 and dim {dim}")
    if isinstance(targets, jax.core.Tracer):
        factorize_one = functools.partial(_factorize_traced, rank=rank)
        return jax.lax.map(factorize_one, targets.astype(jnp.float32))
    return _factorize_host(np.asarray(targets), rank)


def _factorize_host(targets: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    batch, dim, _ = targets.shape
    left = np.empty((batch, dim, rank), np.float32)
    right = np.empty((batch, dim, rank), np.float32)

    def factorize_one(index: int) -> None:
        target = targets[index]
        if not max(target.max(), -target.min()) <= _LARGEST:  # also false for NaN
            raise InputError(f"a matrix to factorize has entries beyond ±{_LARGEST:g}")
        vectors = leading_eigenvectors(target.T @ target, rank)
        vectors *= signs(vectors)
        image = target @ vectors
        root = np.sqrt(_positive(np.linalg.norm(image, axis=0)))
        left[index] = image / root
        right[index] = vectors * root

    for _ in on_cores(factorize_one, range(batch), large=dim >= 1024):
        pass
    return left, right


def _factorize_traced(target: jax.Array, rank: int) -> tuple[jax.Array, jax.Array]:
    # Full float32 products: TF32 or bf16 passes would break the product law on accelerators.
    with jax.default_matmul_precision("highest"):
        gram = target.T @ target
        vectors = traced_eigh(gram)[1][:, ::-1][:, :rank]
        vectors *= signs(vectors)
        image = target @ vectors
        root = jnp.sqrt(_positive(jnp.linalg.norm(image, axis=0, keepdims=True)))
        return image / root, vectors * root


def signs(columns: Any) -> Any:
    """±1 [..., 1, R] that make the largest entry of each column [..., D, R] positive.

    Eigenvectors have either sign, which depends on the processor. Of entries that are equal but for
    rounding, as in symmetric vectors, the first one counts.

    >>> signs(np.array([[-2.0, 3.0], [1.9999, -4.0]]))
    array([[-1., -1.]])
    """
    xp: Any = jnp if isinstance(columns, jax.core.Tracer) else np
    sizes = abs(columns)
    first = (sizes >= 0.999 * sizes.max(axis=-2, keepdims=True)).argmax(axis=-2, keepdims=True)
    return xp.where(xp.take_along_axis(columns, first, axis=-2) < 0, -1, 1).astype(columns.dtype)


def _positive(norms: Any) -> Any:
    # A singular target has σ = 0 and nothing to balance there: keep the division finite.
    return norms.clip(min=np.finfo(np.float32).tiny ** 0.5)


def haar_basis(normal: Array) -> Array:
    """Haar-distributed orthonormal columns from normal noise, [B, D, R] to [B, D, R].

    >>> basis = haar_basis(np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32))
    >>> bool(np.allclose(basis.mT @ basis, np.eye(3), atol=1e-6))
    True
    """
    if isinstance(normal, jax.core.Tracer):
        basis, triangle = jax.lax.map(_traced_qr, normal)
    else:
        with limited_blas():
            basis, triangle = np.linalg.qr(np.asarray(normal))
    # The algorithm of QR fixes each column's sign; the signs of R's diagonal undo that.
    diagonal = triangle.diagonal(axis1=-2, axis2=-1)
    return basis * (1 - 2 * (diagonal < 0).astype(basis.dtype))[:, None, :]


def own_axes(basis: np.ndarray) -> np.ndarray:
    """Return the rotation W [R, R] of orthonormal columns V [N, R] to axes that no eigensolver has
    chosen.

    V W is a function of the space of V alone: signs of eigenvectors, and axes among equal
    eigenvalues, depend on the processor.

    >>> flipped = np.eye(4)[:, [1, 0]] * [-1, 1]
    >>> turned = [basis @ own_axes(basis) for basis in (np.eye(4, 2), flipped)]
    >>> bool(np.allclose(*turned))
    True
    """
    fixed = np.random.default_rng(0).standard_normal(basis.shape)
    return np.asarray(haar_basis((basis.T @ fixed)[None])[0])


# Sequential under vmap, since a batched LAPACK call can deadlock XLA's thread pool.
@jax.custom_batching.sequential_vmap
def traced_eigh(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues [D], ascending, and eigenvectors [D, D] of a traced symmetric matrix."""
    limit_blas_of_virtual_devices()
    values, vectors = jax.lax.platform_dependent(
        matrix, tpu=_jacobi, default=lambda matrix: tuple(jnp.linalg.eigh(matrix))
    )
    return values, vectors


def _jacobi(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    # What JAX takes on TPUs from 257 columns on is one program for each of many sizes, which take
    # minutes to compile. A Newton step makes Jacobi's vectors orthogonal to float32's precision.
    vectors, values = jax.lax.linalg.eigh(
        matrix, implementation=jax.lax.linalg.EighImplementation.JACOBI
    )
    with jax.default_matmul_precision("highest"):
        return values, 1.5 * vectors - vectors @ (vectors.T @ vectors) / 2


@jax.custom_batching.sequential_vmap
def _traced_qr(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    limit_blas_of_virtual_devices()
    basis, triangle = jnp.linalg.qr(matrix)
    return basis, triangle
