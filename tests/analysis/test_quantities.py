"""Products and offsets that figures show; what analyses refuse."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, weights
from mimetic_jax.analysis.attention import attention_maps
from mimetic_jax.analysis.offsets import by_offset, hits
from mimetic_jax.analysis.reachable import equal_factors, reachable
from tests.analysis.networks import drawn


def diagonal_and_noise(product):
    off = ~np.eye(len(product), dtype=bool)
    return product.diagonal().mean(), product[off].std() * len(product) ** 0.5


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


def test_equal_factors_are_on_a_line():
    """Diagonal s², noise s² √(D / K)."""
    got = equal_factors(0, 128, [32, 128], [0.5, 1.0])
    np.testing.assert_allclose(got[:, 0], got[:, 1] / 2)
    np.testing.assert_allclose(got[:, 1, 0], 1, atol=0.05)
    np.testing.assert_allclose(got[:, 1, 1], [2, 1], atol=0.05)


def test_what_has_no_map_is_refused():
    images = jnp.zeros((1, 8, 8, 3))
    with pytest.raises(InputError, match=r"^model mixer has no attention layer"):
        attention_maps(*drawn("mixer", images, width=8, depth=1, patch=4), images)


GRID = (3, 4)


def attention(heads=2, prefix=1):
    count = prefix + GRID[0] * GRID[1]
    weights = np.random.default_rng(0).random((heads, count, count))
    return weights / weights.sum(-1, keepdims=True)


def pairs():
    """(query, key) by the numbers of patches, with key − query."""
    places = list(itertools.product(range(3), range(4)))
    for (i, a), (j, b) in itertools.product(enumerate(places), repeat=2):
        yield i, j, (b[0] - a[0], b[1] - a[1])


def test_by_offset_averages_pairs():
    maps = attention()
    got = by_offset(maps, GRID)
    assert got.shape == (2, 5, 7)
    for m, n in ((0, 0), (-1, 2), (2, -3), (1, 0)):
        chosen = [maps[:, 1 + i, 1 + j] for i, j, offset in pairs() if offset == (m, n)]
        np.testing.assert_allclose(got[:, 2 + m, 3 + n], np.mean(chosen, axis=0))


def test_hits_by_hand():
    """Per image and head; the class token takes part in neither."""
    maps = np.stack([attention(), attention()[:, ::-1]])
    maps[..., 0] = 5.0
    shifts = np.array([[0, 1], [-1, 0]])
    share, mass = hits(maps, GRID, shifts)
    for image, head in itertools.product(range(2), range(2)):
        chosen = [(i, j) for i, j, offset in pairs() if offset == tuple(shifts[head])]
        patches = maps[image, head, 1:, 1:]
        assert share[image, head] == np.mean([patches[i].argmax() == j for i, j in chosen])
        assert mass[image, head] == pytest.approx(np.mean([patches[i, j] for i, j in chosen]))
