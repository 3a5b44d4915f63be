"""Embeddings from the bigrams of a text."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.bigrams import Bigrams
from mimetic_jax import InputError, Rule, plan, rewrite
from mimetic_jax.schemes import Block, Context

KEY = jax.random.key(0)
RULES = (Rule("embedding", "embedding", "t d"),)
TOKENS = np.random.default_rng(0).integers(0, 6, 500)


def test_products_of_rows_are_those_of_the_logarithms():
    """(U √S)(U √S)ᵀ is the positive root of M Mᵀ, M = log(1 + counts); rows have equal norms."""
    scheme = Bigrams.of(TOKENS, 6)
    new = scheme(KEY, Block.of({"embedding": jnp.eye(6, 9)}), Context())
    found = np.asarray(new["embedding"], np.float64)
    counts = np.zeros((6, 6), int)
    for one, other in itertools.pairwise(TOKENS):
        counts[one, other] += 1
    np.testing.assert_array_equal(scheme.counts, counts)
    matrix = np.log1p(counts)
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    root = vectors @ np.diag(np.maximum(values, 0) ** 0.5) @ vectors.T
    root /= np.sqrt(np.outer(root.diagonal(), root.diagonal()))
    np.testing.assert_allclose(found @ found.T, root, atol=1e-5)
    assert not found[:, 6:].any()


def test_the_scheme_keeps_the_scale_and_tokens_that_nothing_follows():
    scheme = Bigrams.of(TOKENS, 8)  # tokens 6 and 7 aren't in the text
    params = {"embedding": 0.1 * jax.random.normal(KEY, (8, 16)), "head": jnp.ones((16, 8))}
    new = rewrite(KEY, params, scheme, rules=RULES)
    np.testing.assert_array_equal(new["embedding"][6:], params["embedding"][6:])
    norms = np.linalg.norm(params["embedding"], axis=1)
    scale = np.sqrt((norms**2).mean())
    np.testing.assert_allclose(np.linalg.norm(new["embedding"][:6], axis=1), scale, rtol=1e-5)
    np.testing.assert_array_equal(new["head"], params["head"])
    control = rewrite(KEY, params, Bigrams(scheme.counts, shuffled=True), rules=RULES)["embedding"]
    assert not np.array_equal(control, new["embedding"])
    np.testing.assert_allclose(
        np.sort(control, axis=0), np.sort(new["embedding"], axis=0), atol=1e-7
    )
    assert [write.path for write in plan(params, scheme, rules=RULES)] == ["embedding"]


def test_counts_of_other_tokens_are_an_error():
    with pytest.raises(InputError, match="1 rows of counts are not a square"):
        Bigrams(((1, 2),))
    with pytest.raises(InputError, match="counts of 6 tokens, but 2 embeddings"):
        rewrite(KEY, {"embedding": jnp.ones((2, 3))}, Bigrams.of(TOKENS, 6), rules=RULES)
