import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimetic_jax.weights import factorize


def products(left, right):
    return np.einsum("bdr,ber->bde", np.asarray(left, np.float64), np.asarray(right, np.float64))


def best_rank(targets, rank):
    """The truth: truncated SVD in float64."""
    u, s, vt = np.linalg.svd(np.asarray(targets, np.float64))
    return (u[..., :rank] * s[..., None, :rank]) @ vt[..., :rank, :]


def noisy_identity(seed, batch, dim, alpha=0.7, beta=0.7):
    noise = np.random.default_rng(seed).normal(size=(batch, dim, dim)) / np.sqrt(dim)
    return (alpha * noise + beta * np.eye(dim)).astype(np.float32)


@pytest.mark.parametrize("route", [factorize, jax.jit(factorize, static_argnums=1)])
def test_golden_products(golden, route):
    arrays = golden("mimetic_svd")
    query_key = 0.7 * arrays["z_qk"] + 0.7 * np.eye(48)
    value_out = 0.4 * arrays["z_vo"] - 0.4 * np.eye(48)
    got = products(*route(query_key.astype(np.float32), int(arrays["head_dim"])))
    np.testing.assert_allclose(got, arrays["qk_product"], atol=2e-6)
    left, right = route(value_out.astype(np.float32)[None], 48)
    np.testing.assert_allclose(products(left, right)[0], arrays["vo_product"], atol=2e-6)
    heads = np.einsum("dhk,ehk->hde", *(np.reshape(x, (48, 3, 16)) for x in (left[0], right[0])))
    np.testing.assert_allclose(heads, arrays["vo_product_per_head"], atol=1e-5)
    norms = np.linalg.norm(left[0], axis=0)
    np.testing.assert_allclose(norms**2, arrays["vo_singular_values"], rtol=1e-4)


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


@pytest.mark.parametrize(
    ("dim", "rank"), [(512, 32), pytest.param(768, 64, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("route", [factorize, jax.jit(factorize, static_argnums=(1, 2))])
def test_fast_route_captures_the_energy(dim, rank, route):
    targets = noisy_identity(2, 1, dim)
    left, right = route(targets, rank, "fast")
    energy = np.linalg.svd(targets[0].astype(np.float64), compute_uv=False)[:rank]
    got = np.linalg.norm(products(left, right))
    assert 0.99 * np.linalg.norm(energy) <= got <= (1 + 1e-5) * np.linalg.norm(energy)
    # In the leading space the map is the target's own.
    error = np.linalg.norm(products(left, right)[0] - targets[0])
    optimum = np.linalg.norm(targets[0] - best_rank(targets, rank)[0])
    assert error <= 1.01 * optimum


def test_fast_route_is_exact_where_it_would_not_be_faster():
    targets = noisy_identity(3, 1, 64)
    for a, b in zip(factorize(targets, 32, "fast"), factorize(targets, 32), strict=True):
        np.testing.assert_array_equal(a, b)


def test_singular_target_is_finite():
    targets = np.zeros((1, 6, 6), np.float32)
    targets[0, 0, 0] = 2.0
    left, right = factorize(targets, 6)
    assert np.isfinite(left).all()
    assert np.isfinite(right).all()
    np.testing.assert_allclose(left[0] @ right[0].T, targets[0], atol=1e-6)
