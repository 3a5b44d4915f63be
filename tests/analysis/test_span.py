from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from mimetic_jax.analysis.span import disjoint_subsets, impulse_subsets


def brute_force(vectors):
    """The largest number of disjoint sets of columns that span all, by trying every set."""
    rank = len(vectors)
    bases = [
        chosen
        for chosen in map(frozenset, itertools.combinations(range(vectors.shape[1]), rank))
        if np.linalg.matrix_rank(vectors[:, sorted(chosen)]) == rank
    ]

    @functools.cache
    def packed(used):
        return max((1 + packed(used | basis) for basis in bases if not basis & used), default=0)

    return packed(frozenset())


KINDS = {
    "random": lambda draws, n, d: draws.normal(size=(n, d)),
    "impulse": lambda draws, n, d: np.eye(n)[:, draws.integers(n, size=d)],
    "box": lambda draws, n, d: np.ones((n, 1)) * draws.normal(size=d),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d"), [(1, 9), (2, 9), (3, 8), (4, 8)])
def test_subsets_are_the_most_there_are(kind, n, d):
    for seed in range(5):
        vectors = KINDS[kind](np.random.default_rng(seed), n, d)
        assert disjoint_subsets(vectors) == brute_force(vectors)


def test_other_filters_have_at_least_as_many():
    for seed in range(20):
        vectors = np.random.default_rng(seed).integers(-1, 2, size=(3, 7)).astype(float)
        assert disjoint_subsets(vectors) <= brute_force(vectors)


@pytest.mark.parametrize(
    ("width", "size", "random", "impulse"),
    [
        (256, 3, 28, 20.8),
        (256, 5, 10, 4.5),
        (256, 8, 4, 0.3),
        (512, 3, 56, 45.9),
        (512, 5, 20, 12.2),
        (512, 8, 8, 2.3),
    ],
)
def test_goldens(width, size, random, impulse):
    draws = np.random.default_rng(0)
    assert disjoint_subsets(draws.normal(size=(size, size, width))) == random
    counts = impulse_subsets(0, width, size, draws=2000)
    assert counts.mean() == pytest.approx(impulse, abs=0.06 + 3 * counts.std() / 2000**0.5)
    cells = draws.integers(size**2, size=width)
    filters = np.eye(size**2)[:, cells].reshape(size, size, width)
    assert disjoint_subsets(filters) == np.bincount(cells, minlength=size**2).min()
