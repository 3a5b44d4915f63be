"""The law of truncation, against singular value decompositions in float64."""

import math

import numpy as np
import pytest

from mimetic_jax.weights.truncation import (
    actual_constants,
    apparent_constants,
    expected_singular_values,
)

CONSTANTS = [(0.7, 0.7), (1.0, 0.2), (0.4, -1.0), (0.05, 0.5), (1.0, 0.0)]
RANKS = [(192, 64), (192, 32), (96, 8), (96, 88)]


def draws(alpha, beta, dim, rank, count=4):
    """Means of (noise, mean diagonal) of truncated draws, and their singular values."""
    random = np.random.default_rng(0)
    found, values = [], []
    for _ in range(count):
        target = alpha * random.standard_normal((dim, dim)) / math.sqrt(dim) + beta * np.eye(dim)
        left, sigma, right = np.linalg.svd(target)
        product = left[:, :rank] * sigma[:rank] @ right[:rank]
        diagonal = product.trace() / dim
        found.append((math.sqrt(np.square(product).sum() / dim - diagonal**2), diagonal))
        values.append(sigma[:rank])
    return np.mean(found, axis=0), np.mean(values, axis=0)


@pytest.mark.parametrize(("dim", "rank"), RANKS)
@pytest.mark.parametrize(("alpha", "beta"), CONSTANTS)
def test_law_is_that_of_svd(alpha, beta, dim, rank):
    measured, values = draws(alpha, beta, dim, rank)
    noise, diagonal = apparent_constants(alpha, beta, rank / dim)
    # Fluctuations of both, and the limit's error, are of order 1/D.
    assert measured[0] == pytest.approx(noise, abs=1.5 * alpha / dim)
    assert measured[1] == pytest.approx(diagonal, abs=1.5 * alpha / dim)
    expected = expected_singular_values(alpha, beta, dim, rank)
    np.testing.assert_allclose(values, expected, atol=0.03 * math.hypot(alpha, beta))


@pytest.mark.parametrize("fraction", [1 / 24, 1 / 12, 1 / 3, 0.9, 1.0])
def test_inverse(fraction):
    for angle in np.linspace(-math.pi / 2, math.pi / 2, 31):
        alpha, beta = 3 * abs(math.cos(angle)), 3 * math.sin(angle)
        back = actual_constants(*apparent_constants(alpha, beta, fraction), fraction)
        assert back == pytest.approx((alpha, beta), abs=1e-3)
        assert math.copysign(1, back[1]) == math.copysign(1, beta)


def test_both_are_homogeneous():
    once, thrice = (np.array(apparent_constants(c * 0.7, c * 0.4, 0.25)) for c in (1, 3))
    np.testing.assert_allclose(thrice, 3 * once)
    np.testing.assert_allclose(actual_constants(*thrice, 0.25), (2.1, 1.2), rtol=1e-3)


def test_limits():
    assert apparent_constants(0.3, -0.4) == pytest.approx((0.3, -0.4))
    assert actual_constants(0.3, -0.4) == (0.3, -0.4)
    assert apparent_constants(0, 0, 0.5) == actual_constants(0, 0, 0.5) == (0, 0)
    # A multiple of a projection: its entries are the same whatever the basis.
    projection = 0.5 * np.diag(np.arange(64) < 16)
    noise, diagonal = apparent_constants(0, 0.5, 0.25)
    assert diagonal == pytest.approx(projection.trace() / 64)
    assert noise == pytest.approx(math.sqrt(np.square(projection).sum() / 64 - diagonal**2))
    assert expected_singular_values(0, -0.5, 64, 16).tolist() == [0.5] * 16
    # More diagonal than any matrix of that rank can have.
    assert actual_constants(0.1, 0.5, 0.25)[0] == pytest.approx(0, abs=1e-12)
