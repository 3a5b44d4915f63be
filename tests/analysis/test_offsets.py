import itertools

import numpy as np
import pytest

from mimetic_jax.analysis.offsets import by_offset, hits

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
