"""Factors of products, and the law of truncation, against decompositions in float64."""

import json
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimetic_jax.weights import factorize
from mimetic_jax.weights.truncation import (
    actual_constants,
    apparent_constants,
    expected_singular_values,
)
from tests.installing import printed_twice

by_products = jax.jit(factorize, static_argnums=1)


def products(left, right):
    return np.einsum("bdr,ber->bde", np.asarray(left, np.float64), np.asarray(right, np.float64))


def best_rank(targets, rank):
    """The truth: truncated SVD in float64."""
    u, s, vt = np.linalg.svd(np.asarray(targets, np.float64))
    return (u[..., :rank] * s[..., None, :rank]) @ vt[..., :rank, :]


def noisy_identity(seed, batch, dim, alpha=0.7, beta=0.7):
    noise = np.random.default_rng(seed).normal(size=(batch, dim, dim)) / np.sqrt(dim)
    return (alpha * noise + beta * np.eye(dim)).astype(np.float32)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    batch=st.integers(1, 4),
    dim=st.integers(2, 24),
    fraction=st.floats(0.01, 1.0),
    beta=st.floats(-1, 1),
)
def test_product_is_the_best_of_its_rank(seed, batch, dim, fraction, beta):
    rank = max(1, round(fraction * dim))
    targets = noisy_identity(seed, batch, dim, beta=beta)
    left, right = factorize(targets, rank)
    assert left.shape == right.shape == (batch, dim, rank)
    truth = best_rank(targets, rank)
    error = np.linalg.norm(products(left, right) - targets, axis=(1, 2))
    optimum = np.linalg.norm(truth - targets, axis=(1, 2))
    # The error, not the product: where σ_K ≈ σ_K+1 the optimum isn't unique.
    np.testing.assert_allclose(error, optimum, rtol=1e-4, atol=1e-4)
    # Balanced, in descending order.
    norms = np.linalg.norm(left, axis=1)
    np.testing.assert_allclose(norms, np.linalg.norm(right, axis=1), rtol=1e-3, atol=1e-5)
    assert (np.diff(norms, axis=1) <= 1e-4).all()


@pytest.mark.parametrize("rank", [64, 300])
def test_tpus_get_a_short_program(rank):
    """From 257 columns on JAX's own eigensolver for TPUs is thousands of lines."""
    targets = jax.ShapeDtypeStruct((1, 600, 600), np.float32)
    lowered = by_products.trace(targets, rank).lower(lowering_platforms=("tpu",)).as_text()
    assert "@Eigh" in lowered
    assert lowered.count("\n") < 200


@pytest.mark.parametrize(("dim", "rank"), [(6, 6), (32, 4)])
@pytest.mark.parametrize("largest", [0.0, 2.0])
def test_singular_target_is_finite(dim, rank, largest):
    targets = np.zeros((1, dim, dim), np.float32)
    targets[0, 0, 0] = largest
    for route in (factorize, by_products):
        left, right = route(targets, rank)
        assert np.isfinite(left).all()
        assert np.isfinite(right).all()
        np.testing.assert_allclose(products(left, right), targets, atol=1e-6)


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


def test_limits():
    assert apparent_constants(0.3, -0.4, 1) == pytest.approx((0.3, -0.4))
    assert actual_constants(0.3, -0.4, 1) == (0.3, -0.4)
    assert apparent_constants(0, 0, 0.5) == actual_constants(0, 0, 0.5) == (0, 0)
    # A multiple of a projection: its entries are the same whatever the basis.
    projection = 0.5 * np.diag(np.arange(64) < 16)
    noise, diagonal = apparent_constants(0, 0.5, 0.25)
    assert diagonal == pytest.approx(projection.trace() / 64)
    assert noise == pytest.approx(math.sqrt(np.square(projection).sum() / 64 - diagonal**2))
    assert expected_singular_values(0, -0.5, 64, 16).tolist() == [0.5] * 16
    # More diagonal than any matrix of that rank can have.
    assert actual_constants(0.1, 0.5, 0.25)[0] == pytest.approx(0, abs=1e-12)


KERNELS = """
import jax, json, numpy as np
from mimetic_jax import weights
from tests.weights.test_counts import zipf
key = jax.random.key(0)
traced = jax.jit(lambda key: weights.query_key(key, 96, 3))
drawn = [
    *(weights.from_counts(key, weights.cooccurrence(zipf(40_000, V), V), 24) for V in (300, 2500)),
    weights.whitened(key, weights.natural_covariance(4), 64),
    *weights.impulse_query_key(key, weights.sincos_2d(8, 8, 48), (8, 8), 6, head_dim=8),
    *weights.value_out(key, 96, 3),
    *weights.query_key(key, 96, 3),
    *traced(key),
]
print(json.dumps([np.asarray(array).tolist() for array in drawn]))
"""


@pytest.mark.slow
def test_every_processor_draws_the_same():
    """Also axes of equal eigenvalues, which natural images and sines have."""
    for arrays in zip(
        *(
            json.loads(printed)
            for printed in printed_twice(KERNELS, "OPENBLAS_CORETYPE", ("Nehalem", "Haswell"))
        ),
        strict=True,
    ):
        one, other = map(np.asarray, arrays)
        np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(one).max())


def test_both_routes_have_the_same_signs():
    targets = noisy_identity(0, 2, 16)
    for one, other in zip(factorize(targets, 8), by_products(targets, 8), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
