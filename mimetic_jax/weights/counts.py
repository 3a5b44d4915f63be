"""Embeddings of tokens from how often they stand near each other in a text."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range, shown
from mimetic_jax.host.cores import cores, limited_blas, on_cores
from mimetic_jax.weights.checks import check_key, check_room, number
from mimetic_jax.weights.checks import counts as positive_integers
from mimetic_jax.weights.factor import haar_basis

if TYPE_CHECKING:
    from scipy.sparse import csr_array

WINDOW = Range(1, 1000, reason="tokens")
SMOOTHING = Range(0, 1)

_CHUNK = 2**22  # tokens that are counted at once, so that memory doesn't grow with the text
_DENSE = 1000  # tokens up to which LAPACK's whole decomposition is as fast as a partial one
_KRYLOV = 5  # columns of the basis of a partial one, for each column that is kept
_BASIS = 500  # columns that it has at least


def cooccurrence(tokens: Any, vocab: int, window: int = 5) -> csr_array:
    """How often tokens stand near each other in a text; near counts more.

    C[i, j] = Σ_{d=1..w} (1/d) · how often token j stands d tokens after or before token i.

    Args:
        tokens: the text, integers [N] from 0 to V − 1. The text in one pass, in bounded memory: a
            memory map will do.
        vocab: V. That of the model, whose padding never occurs.
        window: w ≥ 1, in tokens.

    Returns:
        C, a symmetric `scipy.sparse.csr_array` [V, V] of float64.

    Raises:
        InputError: if tokens aren't integers, have other than one axis, or don't fit V.

    Example:
        >>> cooccurrence([0, 1, 2], vocab=3, window=2).toarray()
        array([[0. , 1. , 0.5],
               [1. , 0. , 1. ],
               [0.5, 1. , 0. ]])

    Reference: the weights 1/d are those of GloVe (Pennington, Socher and Manning 2014).
    """
    import scipy.sparse  # takes 0.1 s: only where it is needed

    vocab, window = positive_integers(vocab=vocab, window=window)
    tokens = tokens if isinstance(tokens, np.ndarray) else np.asarray(tokens)
    if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
        raise InputError(
            f"tokens are {tokens.dtype} of shape {tokens.shape}: give the integers [N] of a text"
        )
    bits = window.bit_length()
    near = np.concatenate([[0.0], 1 / np.arange(1, window + 1)])
    half = scipy.sparse.csr_array((vocab, vocab))
    for start in range(0, len(tokens), _CHUNK):
        part = tokens[start : start + _CHUNK + window].astype(np.int64)
        if part.min() < 0 or part.max() >= vocab:
            wrong = part.min() if part.min() < 0 else part.max()
            raise InputError(f"token {wrong} is not one of {vocab} tokens, from 0")
        pairs = []
        for distance in range(1, window + 1):
            first, second = part[:-distance][:_CHUNK], part[distance:][:_CHUNK]
            both = np.minimum(first, second) * vocab + np.maximum(first, second)
            pairs.append(both << bits | distance)
        sorted_pairs = np.sort(np.concatenate(pairs))
        if not sorted_pairs.size:  # a single token
            continue
        pair = sorted_pairs >> bits
        new = np.flatnonzero(np.diff(pair, prepend=-1))
        sums = np.add.reduceat(near[sorted_pairs & (2**bits - 1)], new)
        row, column = np.divmod(pair[new], vocab)
        half = half + scipy.sparse.csr_array((sums, (row, column)), shape=half.shape)
    return (half + half.T).tocsr()


def log_frequency(counts: Any) -> np.ndarray:
    """log p of each token of a text, from its counts.

    log p_i = log(C_i· / C··): the row sums of `cooccurrence` are proportional to the frequencies,
    but for the first and last tokens of the text. Tokens that never occur have the p of the rarest
    that do.

    Args:
        counts: C [V, V], of `cooccurrence`.

    Returns:
        [V] float32.

    Example:
        >>> np.exp(log_frequency(cooccurrence([0, 1, 0, 1, 0], vocab=2, window=1)))
        array([0.5, 0.5], dtype=float32)

    Reference: A Natural Bias for Language Generation Models (Meister et al. 2022, arXiv
    2212.09686).
    """
    sums = _checked(counts).sum(axis=1)
    if not sums.any():
        return np.full(len(sums), -math.log(len(sums)), np.float32)
    return np.log(sums.clip(min=sums[sums > 0].min()) / sums.sum()).astype(np.float32)


def from_counts(
    key: jax.Array,
    counts: Any,
    dim: int,
    *,
    smoothing: float = 0.75,
    base: jax.Array | None = None,
) -> jax.Array:
    """Embeddings whose products are those of the tokens' pointwise mutual information.

    P_ij = max(0, log(C_ij Σ_k c_k^a / (C_i· c_j^a))) ≈ U S Vᵀ, c the column sums of C. Row i is
    √D σ · normalized(U_i S^½) Q: U and S are the D leading singular vectors and values, σ the root
    mean square of the entries of `base`, Q a random rotation. So tokens that are used alike have
    similar embeddings, and neither the scale nor the axes of the model change.

    Rows of tokens that never occur are those of `base`; so are, before the rotation and at the same
    root mean square, columns beyond the rank of P.

    Args:
        key: a `jax.random` key, of the rotation; concrete or traced.
        counts: C [V, V], of `cooccurrence`; concrete. Its decomposition is kept for further calls
            with the same object.
        dim: D.
        smoothing: a, in [0, 1]: below 1 rare neighbors count less.
        base: the initial values [V, D] that are replaced; standard normal unless given.

    Returns:
        [V, D] float32.

    Raises:
        InputError: if counts aren't a square of finite numbers ≥ 0, or `base` isn't [V, D].

    Example:
        >>> text = [0, 1, 2, 3] * 50 + [4, 1, 2, 3] * 50  # 0 and 4 have the same neighbors
        >>> rows = from_counts(jax.random.key(0), cooccurrence(text, 5, window=1), dim=4)
        >>> cosines = rows @ rows.T / jnp.outer(*2 * [jnp.linalg.norm(rows, axis=1)])
        >>> bool(cosines[0, 4] > 0.9), bool(cosines[0, 1] < 0.1)
        (True, True)

    Reference: Neural Word Embedding as Implicit Matrix Factorization (Levy and Goldberg 2014); the
    smoothing and the power ½ of S are those of Improving Distributional Similarity (Levy, Goldberg
    and Dagan 2015).
    """
    check_key(key)
    (dim,) = positive_integers(dim=dim)
    matrix = _checked(counts)
    vocab = matrix.shape[0]
    check_room((vocab, dim), (vocab, dim), (dim, dim))
    noise_key, turn_key = jax.random.split(key)
    base = jax.random.normal(noise_key, (vocab, dim), jnp.float32) if base is None else base
    if base.shape != (vocab, dim):
        raise InputError(f"counts of {vocab} tokens, but an embedding of shape {base.shape}")
    base = jnp.asarray(base, jnp.float32)
    vectors_VxR = _vectors(_Same(counts), dim, number("smoothing", smoothing, SMOOTHING))
    rank = vectors_VxR.shape[1]
    if not rank:
        return base
    scale = jnp.sqrt(jnp.mean(jnp.square(base)))
    structured = scale * math.sqrt(rank) * jnp.asarray(vectors_VxR)
    turn_DxD = jnp.asarray(haar_basis(jax.random.normal(turn_key, (1, dim, dim), jnp.float32)))[0]
    with jax.default_matmul_precision("highest"):
        rows = jnp.concatenate([structured, base[:, rank:]], axis=1) @ turn_DxD
    return jnp.where(vectors_VxR.any(axis=1, keepdims=True), rows, base)


class _Same:
    """A key of a cache by identity: the counts of a text are large, and made once."""

    def __init__(self, counts: Any) -> None:
        self.counts = counts

    def __hash__(self) -> int:
        return id(self.counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.counts is other.counts


@functools.lru_cache(maxsize=2)
def _vectors(same: _Same, dim: int, smoothing: float) -> np.ndarray:
    """normalized(U S^½) [V, R] of at most D columns, those of singular values that aren't 0; rows
    of tokens without a positive entry of P are zero."""
    positive = positive_information(same.counts, smoothing)
    vocab = positive.shape[0]
    if not positive.nnz:
        return np.zeros((vocab, 0), np.float32)
    with limited_blas():  # other threads spin while the sparse products compute
        if vocab <= max(_DENSE, _KRYLOV * dim):
            left, values, _ = np.linalg.svd(positive.toarray())
        else:
            left, values = _leading(positive, dim)
    order = np.flatnonzero(values[:dim] > 1e-6 * values[0])
    rows = left[:, order] * np.sqrt(values[order])
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    seen = (np.diff(positive.indptr) > 0)[:, None] & (norms > 0)
    return np.where(seen, rows / np.where(seen, norms, 1), 0).astype(np.float32)


def _leading(matrix: csr_array, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The leading left singular vectors [V, count] of a sparse matrix, and their values.

    Block Lanczos on A Aᵀ with a basis of 5 · count vectors, or a few hundred if count is small, all
    of them kept orthogonal. A whole block is multiplied at once, where ARPACK multiplies single
    vectors. The start is fixed: the same counts give the same bytes.

    Reference: Randomized Block Krylov Methods for Stronger and Faster Approximate Singular Value
    Decomposition (Musco and Musco 2015).
    """
    import scipy.linalg

    bands, turned_bands = _bands(matrix), _bands(matrix.T.tocsr())
    basis_size, block_size = max(_KRYLOV * count, _BASIS), max(count // 4, 16)
    basis, products = (
        np.empty((side, basis_size + block_size), np.float32, order="F") for side in matrix.shape
    )
    start = np.random.default_rng(0).standard_normal((matrix.shape[1], block_size), np.float32)
    size, image = 0, start
    while size < basis_size:
        block = _new_directions(_product(bands, image), basis[:, :size])
        if not block.shape[1]:  # the basis has all that the matrix reaches
            break
        image = _product(turned_bands, block)
        end = size + block.shape[1]
        basis[:, size:end], products[:, size:end] = block, image
        size = end
    gram = (products[:, :size].T @ products[:, :size]).astype(np.float64)
    squares, vectors = scipy.linalg.eigh(gram, subset_by_index=(max(size - count, 0), size - 1))
    left = basis[:, :size] @ vectors[:, ::-1].astype(np.float32)
    return left, np.sqrt(squares[::-1].clip(min=0))


def _bands(matrix: csr_array) -> list[csr_array]:
    """The rows of a matrix, in float32, in bands with about as many entries for each core."""
    entries = np.linspace(0, matrix.nnz, cores() + 1)[1:-1]
    ends = [0, *np.searchsorted(matrix.indptr, entries).tolist(), matrix.shape[0]]
    return [matrix[start:end].astype(np.float32) for start, end in itertools.pairwise(ends)]


def _product(bands: Sequence[csr_array], block: np.ndarray) -> np.ndarray:
    """A · block, each band on a core of its own; how many there are changes no row."""
    return np.concatenate(list(on_cores(lambda band: band @ block, bands)))


def _new_directions(block: np.ndarray, known: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what the columns of a block add to known ones, in float32.

    Twice: rounding leaves a part of the known ones the first time.
    """
    for _ in range(2):
        size = np.linalg.norm(block)
        block = block - known @ (known.T @ block)
        squares, vectors = np.linalg.eigh((block.T @ block).astype(np.float64))
        kept = squares > max(1e-6 * squares[-1], 1e-10 * size**2)
        block = block @ (vectors[:, kept] / np.sqrt(squares[kept])).astype(np.float32)
        if not kept.any():
            break
    return block


def positive_information(counts: Any, smoothing: float = 0.75) -> csr_array:
    """P, the positive pointwise mutual information of `from_counts`.

    Args:
        counts: C [V, V], of `cooccurrence`.
        smoothing: a, in [0, 1].

    Returns:
        P [V, V], float64.

    Example:
        >>> counts = cooccurrence([0, 1, 0, 1, 2, 2], vocab=3, window=1)
        >>> positive_information(counts, smoothing=1.0).toarray().round(2)
        array([[0.  , 0.92, 0.  ],
               [0.92, 0.  , 0.  ],
               [0.  , 0.  , 0.8 ]])
    """
    positive = _checked(counts).copy()
    positive.eliminate_zeros()
    sums = positive.sum(axis=0)
    columns = np.where(sums > 0, sums, 1) ** smoothing * (sums > 0)
    rows = np.repeat(positive.sum(axis=1), np.diff(positive.indptr))
    ratios = positive.data * columns.sum() / (rows * columns[positive.indices])
    positive.data = np.log(ratios).clip(min=0)
    positive.eliminate_zeros()
    return positive


def _checked(counts: Any) -> csr_array:
    import scipy.sparse

    try:
        matrix = scipy.sparse.csr_array(counts, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"counts {shown(counts)} are not a matrix [V, V]") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"counts of shape {matrix.shape} are not a square [V, V]")
    if not (np.isfinite(matrix.data).all() and (matrix.data >= 0).all()):
        raise InputError("counts are not all finite numbers of at least 0")
    return matrix
