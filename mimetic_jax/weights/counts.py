"""Embeddings of tokens from how often they stand near each other in a text."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range, converted, shown
from mimetic_jax.host.cores import limited_blas, on_cores
from mimetic_jax.weights.checks import POSITIVE, check_key, check_room, number
from mimetic_jax.weights.checks import counts as positive_integers
from mimetic_jax.weights.factor import haar_basis, own_axes

if TYPE_CHECKING:
    from scipy.sparse import csr_array

WINDOW = Range(1, 1000, reason="tokens")
SMOOTHING = Range(0, 1)
CONTEXTS = 8192
VOCABULARY = Range(1, 2**24, reason="tokens")

_SUMMED = Range(1e-100, 1e100)
"""Counts whose sums and products float64 holds."""

_PAIRS = 2**22  # that are counted at once, by each core, so that memory doesn't grow with the text
_ENTRIES = 2**22  # of a matrix that become logarithms at once
_ROWS = 4096  # of a sparse matrix that are dense at once
_TILE = 2048  # of a product, that a core computes
_EXACT = 2000  # columns up to which LAPACK decomposes in float64
_ROUNDS = 3  # of subspace iteration
_APART = 8  # times the smallest value of a subspace: larger ones have converged after few products
_ROUNDING = 1e-12  # of the logarithm of a ratio of sums
_GROWTH = 1e8  # of a direction in a round, of which float32 still has its difference from others


def cooccurrence(
    tokens: Any, vocab: int, window: int = 5, contexts: int | None = None
) -> csr_array:
    """Count how often tokens stand near each other in a text; near counts more.

    C[i, j] = Σ_{d=1..w} (1/d) · how often token j stands d tokens after or before token i.

    With `contexts`, pairs of two tokens that are both rarer than these are left out; what a token
    has of them is added to its C[i, i], so that all sums are those of the whole. `from_counts` with
    as many contexts reads nothing else, and they are most of a large matrix.

    Args:
        tokens: the text, integers [N] from 0 to V − 1, in bounded memory: a memory map will do.
        vocab: V. That of the model, whose padding never occurs.
        window: w ≥ 1, in tokens.
        contexts: the most frequent tokens whose pairs are all kept, and those that are as frequent;
            None for all.

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
    return symmetric(half_counts(tokens, vocab, window, contexts))


def symmetric(half: csr_array) -> csr_array:
    """C of `half_counts`."""
    return (half + half.T).tocsr()


def half_counts(tokens: Any, vocab: int, window: int, contexts: int | None = None) -> csr_array:
    """Return the upper triangle of C of `cooccurrence`, with half of its diagonal."""
    import scipy.sparse  # takes 0.1 s: only where it is needed

    window, vocab = (
        converted(name, Annotated[int, within], value)
        for name, within, value in (("window", WINDOW, window), ("vocab", VOCABULARY, vocab))
    )
    tokens = _text(tokens)
    frequency = np.zeros(vocab, np.int64)
    for start in range(0, len(tokens), _PAIRS):
        part = _within(tokens[start : start + _PAIRS], vocab)
        frequency += np.bincount(part.astype(np.int64), minlength=vocab)
    kept = np.ones(vocab, bool)
    if contexts is not None and positive_integers(contexts=contexts)[0] < vocab:
        # A token at an end of the text has fewer neighbors: sums order tokens in another way.
        kept = frequency >= np.partition(frequency, -contexts)[-contexts] - window
    size = max(_PAIRS // window, 1)

    def counted(start: int) -> csr_array:
        part = tokens[start : start + size + window].astype(np.int32)
        return _counted(part, min(size, len(tokens) - start), window, kept)

    parts = [scipy.sparse.csr_array((vocab, vocab))]
    for part in on_cores(counted, range(0, len(tokens), size)):
        parts.append(part)
        # Parts of about the same size are added up, so that an entry is read a few times.
        while len(parts) > 1 and parts[-2].nnz <= 2 * parts[-1].nnz:
            parts.append(parts.pop() + parts.pop())
    while len(parts) > 1:
        parts.append(parts.pop() + parts.pop())
    return parts[0]


def following(tokens: Any, vocab: int) -> csr_array:
    """Count how often a token directly follows another in a text.

    C[i, j] = how often token j stands after token i.

    Args:
        tokens: the text, integers [N] from 0 to V − 1, in bounded memory: a memory map will do.
        vocab: V. That of the model, whose padding never occurs.

    Returns:
        C, a `scipy.sparse.csr_array` [V, V] of float64.

    Raises:
        InputError: if tokens aren't integers, have other than one axis, or don't fit V.

    Example:
        >>> following([0, 1, 2, 0, 1], vocab=3).toarray()
        array([[0., 2., 0.],
               [0., 0., 1.],
               [1., 0., 0.]])
    """
    import scipy.sparse

    vocab = converted("vocab", Annotated[int, VOCABULARY], vocab)
    tokens = _text(tokens)
    counts = scipy.sparse.csr_array((vocab, vocab))
    for start in range(0, len(tokens), _PAIRS):
        part = _within(tokens[start : start + _PAIRS + 1], vocab).astype(np.int32)
        pairs = scipy.sparse.coo_array(
            (np.ones(len(part) - 1), (part[:-1], part[1:])), counts.shape
        )
        counts = counts + pairs.tocsr()
    return counts


def _within(part: np.ndarray, vocab: int) -> np.ndarray:
    """A part of a text, after a check of its ids."""
    if part.min() < 0 or part.max() >= vocab:
        wrong = part.min() if part.min() < 0 else part.max()
        raise InputError(f"token id {wrong} is outside 0…{vocab - 1} (vocab={vocab})")
    return part


def _text(tokens: Any) -> np.ndarray:
    try:
        array = np.asarray(tokens)
        given = f"{array.dtype} of shape {array.shape}"
    except ValueError:  # of NumPy, of lists in a list
        array, given = np.empty((0, 0)), "lists of different lengths"
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"tokens are {given}; pass the integers [N] of a text. Documents are joined, each with "
            "an end token: np.concatenate([[*document, END] for document in documents])"
        )
    return array


def _counted(part: np.ndarray, size: int, window: int, kept: np.ndarray) -> csr_array:
    """Half of the counts of pairs whose first token is one of `size`: the upper triangle."""
    import scipy.sparse

    vocab = len(kept)
    after = np.pad(part[1:], (0, size + window - len(part)), constant_values=vocab)
    after = np.lib.stride_tricks.sliding_window_view(after, window)
    ones, starts = np.ones(size), np.arange(size + 1, dtype=np.int32)
    near = np.tile(1 / np.arange(1, window + 1), size)
    first = scipy.sparse.csr_array((ones, part[:size], starts), shape=(size, vocab))
    second = scipy.sparse.csr_array((near, after.ravel(), window * starts), shape=(size, vocab + 1))
    turned = (first.T.tocsr() @ second).T.tocsr()[:vocab]  # which sorts the columns, too
    both = turned + turned.T.tocsr()
    row = np.repeat(np.arange(vocab, dtype=np.int32), np.diff(both.indptr))
    upper = row <= both.indices
    row, column, data = row[upper], both.indices[upper], both.data[upper]
    data[row == column] /= 2
    rare = ~(kept[row] | kept[column]) & (row < column)
    diagonal = sum(np.bincount(token[rare], data[rare] / 2, vocab) for token in (row, column))
    half = scipy.sparse.csr_array((data[~rare], (row[~rare], column[~rare])), (vocab, vocab))
    return (half + scipy.sparse.diags_array(diagonal, dtype=np.float64)).tocsr()


def log_frequency(counts: Any) -> np.ndarray:
    """log p of each token of a text, from its counts.

    log p_i = log(C_i· / C··): the row sums of `cooccurrence` are proportional to the frequencies,
    but for the first and last tokens of the text. Tokens that never occur have the p of the rarest
    that do.

    Args:
        counts: C [V, V], of `cooccurrence`.

    Returns:
        [V] float32.

    Raises:
        InputError: if counts aren't a square of finite numbers ≥ 0, or all are 0.

    Example:
        >>> np.exp(log_frequency(cooccurrence([0, 1, 0, 1, 0], vocab=2, window=1)))
        array([0.5, 0.5], dtype=float32)

    Reference: A Natural Bias for Language Generation Models (Meister et al. 2022, arXiv
    2212.09686).
    """
    sums = _checked(counts).sum(axis=1)
    return np.log(sums.clip(min=sums[sums > 0].min()) / sums.sum()).astype(np.float32)


def next_token(counts: Any, rows: jax.Array, *, smoothing: float = 100.0) -> jax.Array:
    """An output layer that gives, for each token, the logits of the next one as well as it can.

    The least squares of A on the rows of E, each token as often as it occurs,

        G = (EᵀWE)⁻¹ EᵀW A,  A_ij = log(1 + C_ij / (κ p_j)) − aᵢ,  W = diag(p),

    p the frequencies of tokens and aᵢ the mean Σ_j p_j of its row. Beside a bias of log p these are
    the logits of a bigram model, whose counts C have κ p_j more of each pair.

    Args:
        counts: C [V, V], of `following`; concrete.
        rows: E [V, D], each token as the output layer reads it; concrete or traced.
        smoothing: κ > 0.

    Returns:
        Gᵀ [V, D] float32.

    Raises:
        InputError: if counts aren't a square of finite numbers ≥ 0, all are 0, or E hasn't a row
            for each.

    Example:
        >>> counts = following([0, 1, 2] * 100, vocab=3)
        >>> logits = jnp.eye(3) @ next_token(counts, jnp.eye(3), smoothing=1.0).T
        >>> logits.argmax(axis=1).tolist()  # what follows 0, 1 and 2
        [1, 2, 0]

    Reference: ours.
    """
    matrix = _checked(counts).tocsc()  # sums over columns are of neighbors then
    smoothing = number("smoothing", smoothing, POSITIVE)
    check_covers(matrix, len(rows), "the embedding", following)
    first, column = matrix.indices, np.repeat(np.arange(len(rows)), np.diff(matrix.indptr))
    share = (matrix.sum(axis=0) + matrix.sum(axis=1)) / (2 * matrix.sum())
    added = np.log1p(matrix.data / (smoothing * share[column])).astype(np.float32)
    share_V = jnp.asarray(share, jnp.float32)

    def product(weight_V: jax.Array) -> jax.Array:
        terms = added * weight_V[first]
        return jax.ops.segment_sum(terms, column, len(rows), indices_are_sorted=True)

    with jax.default_matmul_precision("highest"):
        weighted_DxV = (jnp.asarray(rows, jnp.float32) * share_V[:, None]).T
        gram_DxD = weighted_DxV @ rows
        sums_DxV = jax.lax.map(product, weighted_DxV)  # a row at a time, as pairs are many
        centered_DxV = sums_DxV - (sums_DxV @ share_V)[:, None]
        ridge = _RIDGE * jnp.trace(gram_DxD) / len(gram_DxD)
        return jnp.linalg.solve(gram_DxD + ridge * jnp.eye(len(gram_DxD)), centered_DxV).T


_RIDGE = 1e-4
"""Of the mean eigenvalue: a direction that no token has gets no logits."""


def from_counts(
    key: jax.Array,
    counts: Any,
    dim: int,
    *,
    smoothing: float = 0.75,
    contexts: int = CONTEXTS,
    std: float | None = None,
    base: jax.Array | None = None,
) -> jax.Array:
    """Embeddings whose products are those of the tokens' pointwise mutual information.

    P_ij = max(0, log(C_ij Σ_k c_k^a / (C_i· c_j^a))) ≈ U S Vᵀ, c the column sums of C, j the tokens
    of the largest c; sums are those of all tokens. Row i is √D σ · normalized(U_i S^½) Q: U and S
    are the D leading singular vectors and values, σ the root mean square of the entries, Q a random
    rotation. So tokens that are used alike have similar embeddings, in random axes.

    Rows of tokens that never occur are those of `base`; so are, before the rotation and at the same
    root mean square, columns beyond the rank of P.

    Args:
        key: a `jax.random` key, of the rotation; concrete or traced.
        counts: C [V, V], of `cooccurrence`; concrete. Their decomposition is kept for further draws
            from the same counts.
        dim: D.
        smoothing: a, in [0, 1]: below 1 rare neighbors count less.
        contexts: the number of columns j of P at most; of tokens as frequent as each other those
            with the lower ids.
        std: σ; defaults to that of `base`.
        base: the initial values [V, D] that are replaced; by default standard normal.

    Returns:
        [V, D] float32. The same counts and key give the same numbers on every processor, up to
        rounding.

    Raises:
        InputError: if counts aren't a square of finite numbers ≥ 0, if no pair occurs more often
            than by chance, or `base` isn't [V, D].

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
    dim, contexts = positive_integers(dim=dim, contexts=contexts)
    smoothing = number("smoothing", smoothing, SMOOTHING)
    if isinstance(smoothing, jax.core.Tracer):
        raise InputError("smoothing must be a number; got a value traced by jit or vmap")
    matrix = _checked(counts)
    vocab = matrix.shape[0]
    check_room((3, vocab, dim), (dim, dim), (2, min(vocab, contexts), min(vocab, contexts)))
    if base is not None:
        check_covers(matrix, len(base), "the embedding", cooccurrence)
        if base.shape != (vocab, dim):
            raise InputError(f"base of shape {base.shape} is not [V, D] = {(vocab, dim)}")
    if std is not None:
        std = number("std", std, POSITIVE)
    vectors_VxR = _kept_vectors(matrix, dim, smoothing, contexts)
    noise_key, turn_key = jax.random.split(key)
    base = jax.random.normal(noise_key, (vocab, dim), jnp.float32) if base is None else base
    base = jnp.asarray(base, jnp.float32)
    scale = jnp.sqrt(jnp.mean(jnp.square(base)))
    if std is not None:
        base, scale = base * (std / scale.clip(min=POSITIVE.low)), jnp.float32(std)
    rank = vectors_VxR.shape[1]
    if not rank:
        if isinstance(base, jax.core.Tracer):  # a plan has no text yet, and computes nothing
            return base
        raise InputError(
            f"counts of shape {matrix.shape} have no pair of tokens that is more frequent than by "
            "chance, so there is no embedding to draw from them: count a longer text"
        )
    structured = scale * math.sqrt(rank) * jnp.asarray(vectors_VxR)
    turn_DxD = jnp.asarray(haar_basis(jax.random.normal(turn_key, (1, dim, dim), jnp.float32)))[0]
    with jax.default_matmul_precision("highest"):
        rows = jnp.concatenate([structured, base[:, rank:]], axis=1) @ turn_DxD
    return jnp.where(vectors_VxR.any(axis=1, keepdims=True), rows, base)


_latest: dict[Any, np.ndarray] = {}


def _kept_vectors(matrix: csr_array, *law: Any) -> np.ndarray:
    """`_vectors` of one of the last two matrices with the same content, else anew."""
    digest = hashlib.sha256()
    for array in (matrix.indptr, matrix.indices, matrix.data):
        digest.update(array.data)
    key = (digest.digest(), *law)
    if key not in _latest:
        vectors = _vectors(matrix, *law)
        for oldest in list(_latest)[:-1]:
            _latest.pop(oldest, None)
        _latest[key] = vectors
    return _latest[key]


def _vectors(matrix: csr_array, dim: int, smoothing: float, contexts: int) -> np.ndarray:
    """normalized(U S^½) W [V, R], U and S of at most D singular values that aren't 0, W of
    `own_axes`; rows of tokens without a positive entry of P are zero."""
    positive = positive_information(matrix, smoothing, contexts)
    if positive.data.max(initial=0) < _ROUNDING:
        return np.zeros((len(positive.indptr) - 1, 0), np.float32)
    with limited_blas():  # its threads change the last bits
        values, right_CxR = _eigenvectors(_gram(positive), dim)
        turned_CxR = (right_CxR * values**-0.25) @ own_axes(right_CxR).astype(values.dtype)
        dense = _dense(positive, values.dtype)
        rows = np.concatenate([_times(part, turned_CxR) for part in dense])
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    seen = norms > 1e-5 * norms.max()  # the others are rounding
    return np.where(seen, rows / np.where(seen, norms, 1), 0).astype(np.float32)


def _gram(matrix: csr_array) -> np.ndarray:
    """AᵀA, in float64 if it is small, by tiles that are the same for any number of cores."""
    size = matrix.shape[1]
    gram = np.zeros((size, size), np.float64 if size <= _EXACT else np.float32)
    edges = [slice(start, start + _TILE) for start in range(0, size, _TILE)]
    tiles = list(itertools.combinations_with_replacement(edges, 2))
    for dense in _dense(matrix, gram.dtype):

        def add(tile: tuple[slice, slice], dense: np.ndarray = dense) -> None:
            gram[tile] += dense[:, tile[0]].T @ dense[:, tile[1]]

        for _ in on_cores(add, tiles):
            pass
    for above, below in tiles:
        gram[below, above] = gram[above, below].T
    return gram


def _dense(matrix: csr_array, kind: Any) -> Iterator[np.ndarray]:
    for start in range(0, matrix.shape[0], _ROWS):
        yield matrix[start : start + _ROWS].astype(kind, copy=False).toarray()


def _times(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left @ right, a tile of rows on each core."""
    tiles = [left[start : start + _TILE // 4] for start in range(0, len(left), _TILE // 4)]
    return np.concatenate(list(on_cores(lambda rows: rows @ right, tiles)))


def _eigenvectors(gram: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The leading eigenvalues above rounding, at most `count`, and their vectors [C, R].

    Of a large matrix by subspace iteration, each round with a Chebyshev polynomial that grows the
    fastest above the smallest value of the subspace. Its degree is limited by the precision of
    float32. The start is fixed.

    SciPy's were measured on one core, on 8,192 columns of `benchmarks.counts` with 10 million
    tokens. Of 64, 256 and 768 vectors this takes 5, 10 and 28 s, and the rows of a matrix that is
    rounded otherwise differ by 1.2e-5, 1.1e-5 and 1.4e-5 (root mean square). `eigsh` from a fixed
    start takes 6, 21 and 77 s, and its rows differ by 9.9e-5 and 4.6e-5 (64 and 256 vectors).
    `eigh` takes 33 s for 768, and its rows differ by 2.9e-5.

    Reference: Self-consistent-field calculations using Chebyshev-filtered subspace iteration (Zhou,
    Saad, Tiago and Chelikowsky 2006).
    """
    import scipy.linalg

    size, block = len(gram), count + max(count // 4, 64)
    if size <= max(_EXACT, 2 * block):
        least = max(size - count, 0)
        values, vectors = scipy.linalg.eigh(gram, subset_by_index=(least, size - 1))
        known = values > np.finfo(values.dtype).eps ** 0.75 * values[-1]
        return values[known][::-1], vectors[:, known][:, ::-1]
    basis = np.random.default_rng(0).standard_normal((size, block), np.float32)
    for _ in range(3):
        values, basis = _orthonormal(_times(gram, basis))
    for _ in range(_ROUNDS):
        half = values[-1] / 2
        largest = basis[:, values > _APART * values[-1]]
        basis = basis[:, largest.shape[1] :]

        def shifted(block: np.ndarray, half: Any = half, largest: np.ndarray = largest) -> Any:
            product = _times(gram, block) / half - block
            return product - largest @ (largest.T @ product)

        per_degree = math.acosh(values[largest.shape[1]] / half - 1)
        before, basis = basis, shifted(basis)
        for _ in range(int(math.log(2 * _GROWTH) / max(per_degree, 2.4)) - 1):
            before, basis = basis, 2 * shifted(basis) - before
        _, basis = _orthonormal(basis / np.linalg.norm(basis, axis=0))
        values, basis = _orthonormal(_times(gram, np.concatenate([largest, basis], axis=1)))
    return values[:count], basis[:, :count]


def _orthonormal(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The singular values of a block of columns above rounding, and its left singular vectors."""
    exact = block.astype(np.float64)
    squares, turn = np.linalg.eigh(_times(exact.T, exact))
    kept = squares > 1e-12 * squares[-1]
    values = np.sqrt(squares[kept])[::-1]
    scaled = turn[:, kept][:, ::-1] / values
    return values.astype(np.float32), _times(block, scaled.astype(np.float32))


def positive_information(counts: Any, smoothing: float, contexts: int) -> csr_array:
    """P, the positive pointwise mutual information of `from_counts`.

    Args:
        counts: C [V, V], of `cooccurrence`.
        smoothing: a, in [0, 1].
        contexts: the number of columns at most, in order of their ids.

    Returns:
        P [V, min(V, contexts)], float32.

    Example:
        >>> counts = cooccurrence([0, 1, 0, 1, 2, 2], vocab=3, window=1)
        >>> positive_information(counts, smoothing=1.0, contexts=3).toarray().round(2)
        array([[0.  , 0.92, 0.  ],
               [0.92, 0.  , 0.  ],
               [0.  , 0.  , 0.8 ]], dtype=float32)
    """
    import scipy.sparse

    matrix = _checked(counts)
    sums = matrix.sum(axis=0)
    # In float32, as the order of sums changes the last bits of float64.
    frequent = np.argsort(-(sums / max(sums.max(), 1)).astype(np.float32), kind="stable")
    columns = np.sort(frequent[:contexts])
    power = np.where(sums > 0, sums, 1) ** smoothing * (sums > 0)
    rows, total = matrix.sum(axis=1), power.sum()
    starts = np.searchsorted(matrix.indptr, range(0, max(matrix.nnz, 1), _ENTRIES))
    edges = [*np.unique(starts[starts < len(rows)]), len(rows)]

    def part(ends: tuple[int, int]) -> csr_array:
        found = matrix[slice(*ends)][:, columns]
        found.eliminate_zeros()
        expected = (
            np.repeat(rows[slice(*ends)], np.diff(found.indptr)) * power[columns][found.indices]
        )
        found.data = np.log(found.data * total / expected).clip(min=0)
        found.eliminate_zeros()
        return found.astype(np.float32)

    return scipy.sparse.vstack(list(on_cores(part, list(itertools.pairwise(edges)))), format="csr")


def check_covers(counts: Any, vocab: int, what: str, counted: Callable[..., Any]) -> None:
    """Raise InputError unless counts are of as many tokens as the model's array.

    `counted` is the function that counts them, which the message suggests.
    """
    if (tokens := counts.shape[0]) != vocab:
        raise InputError(
            f"counts cover {tokens} tokens, but {what} has {vocab}. Use "
            f"{counted.__name__}(tokens, vocab={vocab}), padding included."
        )


def _checked(counts: Any) -> csr_array:
    """Counts as a matrix in float64, whose entries stand once."""
    import scipy.sparse

    try:
        given = counts if scipy.sparse.issparse(counts) else np.asarray(counts)
        if np.iscomplexobj(given):
            raise TypeError
        matrix = scipy.sparse.csr_array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"counts {shown(counts)} are not a matrix [V, V] of numbers") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.shape[0]:
        raise InputError(f"counts of shape {matrix.shape} are not a square [V, V]")
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    low, high = matrix.data.min(initial=0), matrix.data.max(initial=0)
    least = matrix.data.min(initial=1, where=matrix.data > 0)
    if not (low >= 0 and least in _SUMMED and high <= _SUMMED.high):  # also false for NaN
        raise InputError(
            f"counts from {low if low < 0 else least:g} to {high:g} are not all finite numbers of "
            f"at least 0, or have others than {_SUMMED}"
        )
    if not high:
        raise InputError(
            f"counts of shape {matrix.shape} are all 0: count a text of two tokens or more"
        )
    return matrix
