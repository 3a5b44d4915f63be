"""Counts of tokens near each other, and embeddings from them, against plain loops and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from mimetic_jax import InputError, weights
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


def law(counts: np.ndarray, dim: int, smoothing: float) -> np.ndarray:
    """E Eᵀ of rows of norm 1, in float64 and without a sparse matrix."""
    columns = counts.sum(axis=0) ** smoothing
    expected = np.outer(counts.sum(axis=1), columns) / columns.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        positive = np.maximum(0, np.log(counts / expected))
    positive[counts == 0] = 0
    left, values, _ = np.linalg.svd(positive)
    rows = left[:, :dim] * np.sqrt(values[:dim])
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    return rows @ rows.T


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64"])
def test_counts_are_those_of_two_loops_whatever_the_chunk(monkeypatch, window, dtype):
    tokens = zipf(500, 30).astype(dtype)
    expected = counted(tokens, 30, window)
    for chunk in (7, 2**20):
        monkeypatch.setattr(module, "_CHUNK", chunk)
        np.testing.assert_allclose(
            weights.cooccurrence(tokens, 30, window).toarray(), expected, atol=1e-9
        )
    frequencies = np.bincount(tokens, minlength=30) / len(tokens)
    np.testing.assert_allclose(
        np.exp(weights.log_frequency(expected))[frequencies > 0],
        (expected.sum(axis=1) / expected.sum())[frequencies > 0],
        rtol=1e-5,
    )
    rare = np.exp(weights.log_frequency(expected))
    assert rare[-1] == rare[frequencies > 0].min(), "a token that never occurs"


# LAPACK's decomposition, and a partial one.
@typical(("vocab", "smoothing"), [(300, 0.75), (1500, 0.75)], slow=[(300, 1.0), (1500, 1.0)])
def test_products_of_embeddings_are_the_law(vocab, smoothing):
    tokens, dim = zipf(40_000, vocab), 24
    counts = weights.cooccurrence(tokens, vocab)
    rows = np.asarray(weights.from_counts(KEY, counts, dim, smoothing=smoothing), np.float64)
    expected = law(counts.toarray(), dim, smoothing)
    seen = expected.diagonal() > 0.5
    assert 50 < seen.sum() < vocab
    norms = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(norms[seen], norms[seen].mean(), rtol=1e-5)
    found = rows[seen] @ rows[seen].T / norms[seen].mean() ** 2
    np.testing.assert_allclose(found, expected[np.ix_(seen, seen)], atol=1e-5)


@pytest.mark.parametrize("dim", [24, 40])
def test_a_large_vocabulary_of_which_few_tokens_occur(dim):
    """The rank of P is below the number of vectors that are looked for."""
    tokens, V = zipf(5000, 70), 2000
    rows = np.asarray(weights.from_counts(KEY, weights.cooccurrence(tokens, V), dim), np.float64)
    few = law(weights.cooccurrence(tokens, 70).toarray(), dim, 0.75)
    seen = np.flatnonzero(few.diagonal() > 0.5)
    norms = np.linalg.norm(rows[seen], axis=1, keepdims=True)
    found = (rows[seen] / norms) @ (rows[seen] / norms).T
    np.testing.assert_allclose(found, few[np.ix_(seen, seen)], atol=1e-5)


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
    empty = weights.from_counts(KEY, np.zeros((3, 3)), 4, base=jnp.ones((3, 4)))
    np.testing.assert_array_equal(empty, jnp.ones((3, 4)))


def test_the_number_of_cores_changes_no_byte(monkeypatch):
    counts, drawn = weights.cooccurrence(zipf(20_000, 1500), 1500), []
    for cores in (1, 3):
        monkeypatch.setattr(module, "cores", lambda cores=cores: cores)
        drawn.append(weights.from_counts(KEY, counts.copy(), 24))
    np.testing.assert_array_equal(*drawn)


BYTES = """
import hashlib, jax, numpy as np
from mimetic_jax import weights
from tests.weights.test_counts import zipf
counts = weights.cooccurrence(zipf(40_000, 1500), 1500)
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
        (lambda: weights.cooccurrence([1, 9], 4), "token 9 is not one of 4 tokens, from 0"),
        (lambda: weights.cooccurrence([1, -1], 4), "token -1 is not one of 4 tokens"),
        (lambda: weights.cooccurrence([1], 4, window=0), "window 0 is not an integer"),
        (lambda: weights.log_frequency(np.ones((2, 3))), r"\(2, 3\) are not a square"),
        (lambda: weights.log_frequency("text"), "are not a matrix"),
        (lambda: weights.from_counts(KEY, -np.ones((2, 2)), 4), "finite numbers of at least 0"),
        (
            lambda: weights.from_counts(KEY, np.ones((2, 2)), 4, base=jnp.ones((3, 4))),
            r"counts of 2 tokens, but an embedding of shape \(3, 4\)",
        ),
        (lambda: weights.from_counts(KEY, np.ones((2, 2)), 4, smoothing=2), "smoothing 2"),
    ],
)
def test_input_that_can_not_work(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_a_text_of_one_token_has_no_pairs():
    assert weights.cooccurrence([2], 4).nnz == 0
    np.testing.assert_allclose(weights.log_frequency(scipy.sparse.csr_array((4, 4))), -np.log(4))
