"""Embeddings from bigrams and the scheme that writes them; tables of positions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import Rule, plan, rewrite
from mimetic_jax.schemes import Bigrams
from mimetic_jax.weights import bigram_counts, bigram_embedding, sincos_1d, sincos_2d

KEY = jax.random.key(0)
RULES = (Rule("embedding", "embedding", "t d"),)
TOKENS = np.random.default_rng(0).integers(0, 6, 500)


def test_counts_are_those_of_a_loop():
    expected = np.zeros((7, 7), int)
    for one, other in itertools.pairwise(TOKENS):
        expected[one, other] += 1
    np.testing.assert_array_equal(bigram_counts(TOKENS, 7), expected)


def test_products_of_rows_are_those_of_the_logarithms():
    """(U √S)(U √S)ᵀ is the positive root of M Mᵀ, M = log(1 + counts); rows have norm 1."""
    found = np.asarray(bigram_embedding(bigram_counts(TOKENS, 6), 9), np.float64)
    matrix = np.log1p(bigram_counts(TOKENS, 6))
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    root = vectors @ np.diag(np.maximum(values, 0) ** 0.5) @ vectors.T
    root /= np.sqrt(np.outer(root.diagonal(), root.diagonal()))
    np.testing.assert_allclose(found @ found.T, root, atol=1e-5)
    assert not found[:, 6:].any()


def test_the_scheme_keeps_the_scale_and_tokens_that_nothing_follows():
    counts = bigram_counts(TOKENS, 8)  # tokens 6 and 7 aren't in the text
    stored = tuple(map(tuple, counts.tolist()))
    params = {"embedding": 0.1 * jax.random.normal(KEY, (8, 16)), "head": jnp.ones((16, 8))}
    new = rewrite(KEY, params, Bigrams(stored), rules=RULES)
    np.testing.assert_array_equal(new["embedding"][6:], params["embedding"][6:])
    norms = np.linalg.norm(params["embedding"], axis=1)
    scale = np.sqrt((norms**2).mean())
    np.testing.assert_allclose(np.linalg.norm(new["embedding"][:6], axis=1), scale, rtol=1e-5)
    np.testing.assert_array_equal(new["head"], params["head"])
    control = rewrite(KEY, params, Bigrams(stored, shuffled=True), rules=RULES)["embedding"]
    assert not np.array_equal(control, new["embedding"])
    np.testing.assert_allclose(
        np.sort(control, axis=0), np.sort(new["embedding"], axis=0), atol=1e-7
    )
    assert [write.path for write in plan(params, Bigrams(stored), rules=RULES)] == ["embedding"]


def test_golden_tables(golden):
    tables = golden("sincos")
    np.testing.assert_allclose(sincos_2d(4, 4, 16), tables["simplevit_4x4_d16"], atol=1e-6)
    np.testing.assert_allclose(sincos_2d(3, 5, 8), tables["simplevit_3x5_d8"], atol=1e-6)
    np.testing.assert_allclose(
        sincos_1d(16, 16), tables["vaswani1d_interleaved_n16_d16"], atol=1e-6
    )


@pytest.mark.parametrize("dim", [1, 41, 410])
def test_text_tables_of_any_width(dim):
    assert sincos_1d(5, dim).shape == (5, dim)
