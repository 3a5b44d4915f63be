"""Heads of content: their products, against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, rewrite
from mimetic_jax.models.gpt import GPT, RULES
from mimetic_jax.schemes import ContentHeads, InductionCircuit

KEY = jax.random.key(0)
SLOW = 10_000.0 ** (-np.arange(8) / 8) < 0.05
SLOW = np.concatenate([SLOW, SLOW])


def gpt(scheme, depth=4, rules=RULES):
    module = GPT(vocab=9, width=64, depth=depth, heads=4, positions="rotary", base="torch")
    before = module.init(KEY, jnp.zeros((1, 4), jnp.int32))["params"]
    after = rewrite(KEY, before, scheme, rules=rules)

    def kernels(tree, layer):
        attention = tree[f"block_{layer}"]["attention"]
        return {name: np.float64(attention[name]["kernel"]) for name in attention}

    return [(kernels(before, layer), kernels(after, layer)) for layer in range(depth)]


def test_content_heads_have_equal_queries_and_keys_on_slow_pairs():
    for before, after in gpt(ContentHeads(10_000, first=2)):
        np.testing.assert_array_equal(after["query"][:, :2], before["query"][:, :2])
        np.testing.assert_array_equal(after["query"][:, 2:, ~SLOW], before["query"][:, 2:, ~SLOW])
        np.testing.assert_array_equal(after["query"][:, 2:, SLOW], before["key"][:, 2:, SLOW])
        np.testing.assert_array_equal(after["key"], before["key"])


def test_the_circuit_matches_a_token_with_the_one_before_another():
    """W_Q W_Kᵀ of the reader times (W_V W_out)ᵀ of the copier is β c P Pᵀ of the slow columns."""
    layers = gpt(InductionCircuit(10_000, copies=1, matches=3, copy=2.0, match=0.5))
    bases = []
    for first, second in ((0, 1), (2, 3)):
        (_, copier), (_, reader) = layers[first], layers[second]
        copied = copier["value"][:, 1] @ copier["out"][1]
        matched = reader["query"][:, 3][:, SLOW] @ reader["key"][:, 3][:, SLOW].T
        basis = reader["query"][:, 3][:, SLOW] / np.sqrt(0.5)
        np.testing.assert_allclose(basis.T @ basis, np.eye(SLOW.sum()), atol=1e-5)
        np.testing.assert_allclose(matched @ copied.T, 0.5 * 2 * basis @ basis.T, atol=1e-5)
        bases.append(basis)
    assert np.abs(bases[0].T @ bases[1]).max() < 0.9  # another pair of layers, another subspace
    for layer, (before, after) in enumerate(layers):
        kept = ("query", "key") if layer % 2 == 0 else ("value", "out")
        for name in kept:
            np.testing.assert_array_equal(after[name], before[name])


def test_refused():
    with pytest.raises(InputError, match="heads 1 and 4 are not two of 4"):
        gpt(InductionCircuit(10_000, matches=4))
    with pytest.raises(InputError, match="all 16 columns of a head turn faster than 1e-06"):
        gpt(ContentHeads(10_000, slowest=1e-6))
