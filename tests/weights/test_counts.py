"""Counts of tokens near each other, and embeddings from them, against plain loops and NumPy."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from mimetic_jax import InputError, weights
from mimetic_jax.host import cores
from mimetic_jax.weights import counts as module
from tests.installing import printed_twice
from tests.typical import typical

KEY = jax.random.key(0)


def zipf(size: int, vocab: int, seed: int = 0) -> np.ndarray:
    """A text in which near tokens depend on each other, the last token of V never occurs."""
    random = np.random.default_rng(seed)
    topics = np.repeat(random.integers(0, 5, size // 20 + 1), 20)[:size]
    ranks = np.minimum(random.zipf(1.3, size), vocab // 5 - 1)
    return np.minimum(ranks * 5 + topics, vocab - 2)


def counted(tokens: np.ndarray, vocab: int, window: int) -> np.ndarray:
    counts = np.zeros((vocab, vocab))
    for at, one in enumerate(tokens):
        for distance in range(1, min(window, len(tokens) - 1 - at) + 1):
            other = tokens[at + distance]
            counts[one, other] += 1 / distance
            counts[other, one] += 1 / distance
    return counts


def law(counts: np.ndarray, dim: int, smoothing: float, contexts: int) -> np.ndarray:
    """E Eᵀ of rows of norm 1, in float64 and without a sparse matrix."""
    columns = counts.sum(axis=0) ** smoothing
    expected = np.outer(counts.sum(axis=1), columns) / columns.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        positive = np.maximum(0, np.log(counts / expected))
    positive[counts == 0] = 0
    frequent = np.argsort(-counts.sum(axis=0).round(6), kind="stable")[:contexts]
    left, values, _ = np.linalg.svd(positive[:, frequent], full_matrices=False)
    rows = left[:, :dim] * np.sqrt(values[:dim])
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.where(norms > 1e-9, rows / norms.clip(min=1e-9), 0)  # the others are rounding
    return rows @ rows.T


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64"])
def test_counts_are_those_of_two_loops_whatever_the_chunk(monkeypatch, window, dtype):
    tokens = zipf(500, 30).astype(dtype)
    expected = counted(tokens, 30, window)
    for pairs in (7 * window, 2**20):
        monkeypatch.setattr(module, "_PAIRS", pairs)
        found = weights.cooccurrence(tokens, 30, window).toarray()
        np.testing.assert_allclose(found, expected, atol=1e-9)
    frequencies = np.bincount(tokens, minlength=30) / len(tokens)
    np.testing.assert_allclose(
        np.exp(weights.log_frequency(expected))[frequencies > 0],
        (expected.sum(axis=1) / expected.sum())[frequencies > 0],
        rtol=1e-5,
    )
    rare = np.exp(weights.log_frequency(expected))
    assert rare[-1] == rare[frequencies > 0].min(), "a token that never occurs"


def test_counts_of_rare_pairs_are_left_out_and_the_law_is_the_same():
    """Sums are those of the whole text, and the columns of frequent tokens."""
    tokens, contexts = zipf(3000, 200), 20
    whole = weights.cooccurrence(tokens, 200, contexts=200)
    part = weights.cooccurrence(tokens, 200, contexts=contexts)
    assert part.nnz < 0.8 * whole.nnz
    np.testing.assert_allclose(part.sum(axis=0), whole.sum(axis=0))
    assert not (part != part.T).nnz
    laws = [module.positive_information(counts, 0.75, contexts) for counts in (whole, part)]
    np.testing.assert_allclose(*(each.toarray() for each in laws), atol=1e-6)
    cosines = [rows @ rows.T for rows in (embedded(each, 12, contexts) for each in (whole, part))]
    np.testing.assert_allclose(*cosines, atol=1e-5)


def embedded(counts, dim, contexts=module.CONTEXTS, **options):
    """Rows of norm 1 in float64."""
    rows = weights.from_counts(KEY, counts, dim, contexts=contexts, **options)
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


# LAPACK's decomposition in float64, and subspace iteration.
@typical(
    ("vocab", "contexts", "exact"),
    [(300, 8192, 300), (300, 50, 300), (300, 8192, 100)],
    slow=[(1500, 8192, 1500), (1500, 300, 1500), (1500, 1000, 100)],
)
@pytest.mark.parametrize("smoothing", [0.75, 1.0])
def test_products_of_embeddings_are_the_law(monkeypatch, vocab, contexts, exact, smoothing):
    monkeypatch.setattr(module, "_EXACT", exact)
    dim, counts = 24, weights.cooccurrence(zipf(40_000, vocab), vocab)
    expected = law(counts.toarray(), dim, smoothing, contexts)
    seen = expected.diagonal() > 0.5
    assert 50 < seen.sum() < vocab
    rows = embedded(counts, dim, contexts, smoothing=smoothing)[seen]
    np.testing.assert_allclose(rows @ rows.T, expected[np.ix_(seen, seen)], atol=1e-4)


@pytest.mark.parametrize("dim", [24, 40])
def test_a_large_vocabulary_of_which_few_tokens_occur(monkeypatch, dim):
    """The rank of P is below the number of vectors that are looked for."""
    monkeypatch.setattr(module, "_EXACT", 100)
    tokens, V = zipf(5000, 70), 400
    few = law(weights.cooccurrence(tokens, 70).toarray(), dim, 0.75, 70)
    seen = np.flatnonzero(few.diagonal() > 0.5)
    rows = embedded(weights.cooccurrence(tokens, V), dim)[seen]
    np.testing.assert_allclose(rows @ rows.T, few[np.ix_(seen, seen)], atol=1e-5)


def test_scale_and_rows_of_tokens_that_never_occur_are_those_of_the_base():
    tokens, base = zipf(2000, 40), 0.02 * jax.random.normal(KEY, (40, 16))
    counts = weights.cooccurrence(tokens, 40)
    one, other = (
        weights.from_counts(jax.random.key(seed), counts, 16, base=base) for seed in (1, 2)
    )
    never = np.bincount(tokens, minlength=40) == 0
    assert never.any()
    np.testing.assert_array_equal(one[never], base[never])
    scale = np.sqrt(np.mean(np.square(base)))
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(one[~never]))), scale, rtol=1e-5)
    assert not np.allclose(one, other, atol=scale / 2), "axes are random"
    rows, others = one[~never], other[~never]
    np.testing.assert_allclose(rows @ rows.T, others @ others.T, atol=1e-4 * 16 * scale**2)


def test_columns_beyond_the_rank_keep_noise():
    """A vocabulary of characters is smaller than the width."""
    counts = weights.cooccurrence(zipf(2000, 20), 20)
    rows = np.asarray(weights.from_counts(KEY, counts, 64))
    assert np.linalg.matrix_rank(rows) == 20
    np.testing.assert_allclose(np.sqrt(np.mean(rows**2)), 1, atol=0.05)


def test_the_number_of_cores_changes_no_byte(monkeypatch):
    drawn = []
    for count in (1, 3):
        monkeypatch.setattr(cores, "cores", lambda count=count: count)
        monkeypatch.setattr(cores, "_pool", lambda count=count: ThreadPoolExecutor(count))
        monkeypatch.setattr(module, "_PAIRS", 10_000)
        monkeypatch.setattr(module, "_EXACT", 100)
        monkeypatch.setattr(module, "_TILE", 256)
        module._latest.clear()
        drawn.append(weights.from_counts(KEY, weights.cooccurrence(zipf(20_000, 700), 700), 24))
    np.testing.assert_array_equal(*drawn)


def test_a_matrix_that_is_changed_in_place_is_decomposed_anew():
    counts = weights.cooccurrence(zipf(2000, 20), 20)
    before = embedded(counts, 4)
    counts.data[:] = counts.data[::-1].copy()
    counts = (counts + counts.T).tocsr()
    np.testing.assert_array_equal(embedded(counts.copy(), 4), embedded(counts, 4))
    assert not np.allclose(before, embedded(counts, 4))


def test_entries_that_stand_twice_are_added_up():
    halves = scipy.sparse.csr_array(([1.0, 1, 2, 3], [1, 1, 0, 2], [0, 2, 3, 4]), shape=(3, 3))
    np.testing.assert_array_equal(embedded(halves, 3), embedded(halves.toarray(), 3))
    assert halves.nnz == 4, "the caller's matrix"


def test_the_scale_may_be_given():
    counts, base = weights.cooccurrence(zipf(2000, 40), 40), 0.02 * jax.random.normal(KEY, (40, 16))
    kept, large = (weights.from_counts(KEY, counts, 16, std=std, base=base) for std in (None, 1.0))
    scale = np.sqrt(np.mean(np.square(base)))
    np.testing.assert_allclose(large * scale, kept, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(large[:30]))), 1, rtol=0.05)


BYTES = """
import hashlib, jax, numpy as np
from mimetic_jax import weights
from tests.weights.test_counts import zipf
counts = weights.cooccurrence(zipf(40_000, 2500), 2500)
rows = weights.from_counts(jax.random.key(0), counts, 24)
print(hashlib.sha256(np.asarray(rows).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_two_processes_draw_the_same_bytes():
    first, second = printed_twice(BYTES)
    assert first == second
    assert len(first) == 65


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: weights.cooccurrence(np.ones(3), 4), r"tokens are float64 of shape \(3,\)"),
        (lambda: weights.cooccurrence([[1, 2]], 4), r"tokens are int64 of shape \(1, 2\)"),
        (lambda: weights.cooccurrence([1, 9], 4), r"token id 9 is outside 0…3 \(vocab=4\)"),
        (lambda: weights.cooccurrence([1, -1], 4), "token id -1 is outside 0…3"),
        (lambda: weights.cooccurrence([1], 4, window=0), "window must be an integer.*got 0"),
        (lambda: weights.log_frequency(np.ones((2, 3))), r"\(2, 3\) are not a square"),
        (lambda: weights.log_frequency("text"), "are not a matrix"),
        (lambda: weights.from_counts(KEY, -np.ones((2, 2)), 4), "finite numbers of at least 0"),
        (
            lambda: weights.from_counts(KEY, np.ones((2, 2)), 4, base=jnp.ones((3, 4))),
            r"the embedding has 3. Use cooccurrence\(tokens, vocab=3\)",
        ),
        (
            lambda: weights.from_counts(KEY, np.ones((2, 2)), 4, base=jnp.ones((2, 5))),
            r"base of shape \(2, 5\) is not \[V, D\] = \(2, 4\)",
        ),
        (
            lambda: weights.from_counts(KEY, np.ones((2, 2)), 4, smoothing=2),
            r"smoothing must be a number in \[0, 1\]; got 2",
        ),
        (
            lambda: weights.from_counts(KEY, np.ones((2, 2)), 4, std=0),
            "std must be a number .*; got 0",
        ),
        (lambda: weights.from_counts(KEY, np.ones((2, 2)), 2**31), "GiB of memory"),
        (lambda: weights.cooccurrence([1], 2**31), "vocab must be an integer .*; got 2147483648"),
        (lambda: weights.cooccurrence([[1, 2], [3]], 4), "lists of different lengths.*END"),
        (
            lambda: weights.cooccurrence([1], 4, contexts=0),
            "contexts must be an integer ≥ 1; got 0",
        ),
        *(
            (lambda counts=counts: weights.from_counts(KEY, counts, 4), words)
            for counts, words in [
                (np.zeros((0, 0)), r"\(0, 0\) are not a square"),
                ([[1, 2], [3]], "not a matrix"),
                (np.ones((2, 2), complex), "not a matrix"),
                (np.full((2, 2), 1e308), r"to 1e\+308"),
                (np.full((2, 2), 5e-324), "from 4.94066e-324"),
            ]
        ),
        (
            lambda: jax.jit(lambda a: weights.from_counts(KEY, np.eye(2), 4, smoothing=a))(0.5),
            "smoothing must be a number; got a value traced",
        ),
    ],
)
def test_input_that_can_not_work(call, words):
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.parametrize(
    "read",
    [
        weights.log_frequency,
        lambda counts: weights.from_counts(KEY, counts, 8),
        lambda counts: weights.next_token(counts, jnp.ones((4, 8))),
    ],
)
@pytest.mark.parametrize("counts", [weights.cooccurrence([2], 4), np.zeros((4, 4))])
def test_a_text_of_one_token_has_no_pairs(read, counts):
    with pytest.raises(
        InputError, match=r"counts of shape \(4, 4\) are all 0: count a text of two"
    ):
        read(counts)


@pytest.mark.parametrize("vocab", [3, 7, 10, 100])
@pytest.mark.parametrize("number", [1, 1 / 3, np.pi])
def test_counts_by_chance_alone_have_no_embedding(vocab, number):
    """Rounding is no information, either."""
    counts = np.full((vocab, vocab), number)
    with pytest.raises(InputError, match="no pair of tokens that is more frequent than by chance"):
        weights.from_counts(KEY, counts, 4, base=jnp.ones((vocab, 4)))
