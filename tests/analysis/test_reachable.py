from __future__ import annotations

import jax
import numpy as np
import pytest

from mimetic_jax import weights
from mimetic_jax.analysis.reachable import equal_factors, reachable


def diagonal_and_noise(product):
    off = ~np.eye(len(product), dtype=bool)
    return product.diagonal().mean(), product[off].std() * len(product) ** 0.5


def test_full_rank_reaches_what_is_asked():
    got = reachable(0, 96, [96], [0.2, 0.7], [0.0, 0.5])
    for i, alpha in enumerate((0.2, 0.7)):
        for j, beta in enumerate((0.0, 0.5)):
            np.testing.assert_allclose(got[0, i, j], [beta, alpha], atol=0.03)


@pytest.mark.parametrize("rank", [16, 32])
def test_low_rank_is_that_of_the_initialization(rank):
    """The same statistics as of kernels that `weights.query_key` draws, over independent noise."""
    query, key = weights.query_key(jax.random.key(0), 96, 8, head_dim=rank)
    drawn = [
        diagonal_and_noise(np.asarray(query[:, head] @ key[:, head].T, np.float64))
        for head in range(8)
    ]
    got = reachable(3, 96, [rank], [0.7], [0.7])[0, 0, 0]
    np.testing.assert_allclose(got, np.mean(drawn, axis=0), rtol=0.06)


def test_published_diagonal():
    """At D = 192 and K = 64, .7 and .7 come to a diagonal of .395."""
    assert reachable(0, 192, [64], [0.7], [0.7])[0, 0, 0, 0] == pytest.approx(0.395, abs=0.01)


def test_equal_factors_are_on_a_line():
    """Diagonal s², noise s² √(D / K)."""
    got = equal_factors(0, 128, [32, 128], [0.5, 1.0])
    np.testing.assert_allclose(got[:, 0], got[:, 1] / 2)
    np.testing.assert_allclose(got[:, 1, 0], 1, atol=0.05)
    np.testing.assert_allclose(got[:, 1, 1], [2, 1], atol=0.05)
