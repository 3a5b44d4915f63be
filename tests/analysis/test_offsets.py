import itertools

import numpy as np
import pytest

from mimetic_jax.analysis.expected import expected_map
from mimetic_jax.analysis.offsets import by_offset, hits, self_and_ring
from mimetic_jax.weights import sincos_2d
from mimetic_jax.weights.impulse import impulse_matrices, offsets

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


def test_an_impulse_is_one_point():
    shifts = offsets(3, 9)
    maps = impulse_matrices(GRID, shifts)
    around = by_offset(maps, GRID)
    assert around.sum() == 9
    for head, (m, n) in enumerate(shifts):
        assert around[head, 2 + m, 3 + n] == 1
    share, mass = hits(maps, GRID, shifts)
    assert share.tolist() == mass.tolist() == [1.0] * 9


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


def test_self_and_ring():
    patches = attention()[0, 1:, 1:]
    itself, ring = self_and_ring(attention()[0], GRID)
    assert itself == pytest.approx(np.trace(patches) / 12)
    near = [patches[i, j] for i, j, (m, n) in pairs() if 1 <= max(abs(m), abs(n)) <= 1]
    assert ring == pytest.approx(np.sum(near) / 12)


# Computed independently from the formula: mean attention to the patch itself and to the ring of its
# neighbors, on a 16×16 grid with D = 192 and K = 64.
PUBLISHED = {
    (0.7, True): (1.0, 3e-7),
    (0.395, True): (0.992, 0.0005),
    (0.7, False): (0.0179, 0.1061),
    (0.395, False): (0.0098, 0.0631),
}


@pytest.mark.parametrize(("beta", "content"), PUBLISHED)
def test_goldens(beta, content):
    attention = expected_map(sincos_2d(16, 16, 192), 64, beta, content=content)
    itself, ring = self_and_ring(attention, (16, 16))
    expected_self, expected_ring = PUBLISHED[beta, content]
    assert itself == pytest.approx(expected_self, abs=5e-4 if content else 5e-5)
    assert ring == pytest.approx(expected_ring, abs=5e-5)


def test_rows_are_the_softmax_of_the_logits():
    position = np.random.default_rng(0).normal(size=(5, 4))
    got = expected_map(position, 9, 0.3)
    logits = 0.3 * (4 * np.eye(5) + position @ position.T) / 3
    np.testing.assert_allclose(np.log(got / got[:, :1]), logits - logits[:, :1], atol=1e-12)
    np.testing.assert_allclose(got.sum(1), 1)
