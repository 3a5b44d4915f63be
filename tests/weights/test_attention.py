import jax
import numpy as np
import pytest

from mimetic_jax.weights import attention, query_key, value_out
from tests import products

KEY = jax.random.key(7)


@pytest.mark.parametrize(
    ("dim", "heads", "diagonal"),
    [(192, 3, 0.395), pytest.param(768, 12, 0.119, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("noise", ["normal", "uniform"])
def test_query_key_law_of_the_paper(dim, heads, diagonal, noise):
    """The diagonals that truncation leaves, measured on float64 SVDs (REFERENCES 2.2)."""
    found = products.query_key(*query_key(KEY, dim, heads, noise=noise))
    assert found.diagonal(axis1=1, axis2=2).mean() == pytest.approx(diagonal, abs=0.01)
    # 64 singular values; the rest are zero.
    values = np.linalg.svd(found[0], compute_uv=False)
    assert values[63] > 1
    assert values[64] < 1e-5


def test_products_are_those_of_the_drawn_targets():
    """Same noise, float64 SVDs: the exact law, not a statistic of it."""
    noise = np.asarray(attention._draw(jax.random.split(KEY, 4), 32, "normal"), np.float64)
    targets = 0.7 * noise + 0.7 * np.eye(32)
    u, s, vt = np.linalg.svd(targets)
    truth = (u[..., :8] * s[:, None, :8]) @ vt[:, :8]
    np.testing.assert_allclose(products.query_key(*query_key(KEY, 32, 4)), truth, atol=1e-5)
    noise = np.asarray(attention._draw(KEY[None], 32, "normal"), np.float64)[0]
    product = products.value_out(*value_out(KEY, 32, 4)).sum(0)
    np.testing.assert_allclose(product, 0.4 * noise - 0.4 * np.eye(32), atol=1e-5)


def test_the_port_stores_the_same_factors_transposed():
    value, out = (kernel.reshape(24, 24) for kernel in value_out(KEY, 24, 3))
    port = [kernel.reshape(24, 24) for kernel in value_out(KEY, 24, 3, orientation="port")]
    np.testing.assert_array_equal(port[0], value.T)
    np.testing.assert_array_equal(port[1], out.T)


@pytest.mark.parametrize(
    ("groups", "repeats", "head_dim", "dim"), [(3, 2, 4, 16), (2, 3, 12, 8), (1, 1, 1, 5)]
)
def test_grouped_heads(groups, repeats, head_dim, dim):
    """query[:, h] @ key[:, g].T is the group's target; value/out has rank min(D, G K)."""
    sizes = {"head_dim": head_dim, "num_kv_heads": groups}
    key = jax.random.key(dim)
    query, key_kernel = query_key(key, dim, groups * repeats, **sizes)
    value, out = value_out(key, dim, groups * repeats, **sizes)
    assert query.shape == (dim, groups * repeats, head_dim)
    assert out.shape == (groups * repeats, head_dim, dim)
    assert key_kernel.shape == value.shape == (dim, groups, head_dim)
    grouped = products.query_key(query, key_kernel).reshape(groups, repeats, dim, dim)
    np.testing.assert_allclose(grouped, grouped[:, :1].repeat(repeats, 1), atol=1e-6)
    assert np.linalg.matrix_rank(grouped[0, 0], tol=1e-4) <= min(dim, head_dim)
    noise = np.asarray(attention._draw(key[None], dim, "normal"), np.float64)[0]
    target = 0.4 * noise - 0.4 * np.eye(dim)
    rank = min(dim, groups * head_dim)
    optimum = np.linalg.norm(np.linalg.svd(target, compute_uv=False)[rank:])
    error = np.linalg.norm(products.value_out(value, out).sum(0) - target)
    assert error == pytest.approx(optimum, abs=1e-4)


def test_surplus_units_are_alive():
    """More head columns than D: the product law holds and no unit is zero on both sides."""
    value, out = value_out(KEY, 16, 4, head_dim=8)
    product = products.value_out(value, out).sum(0)
    assert product.diagonal().mean() == pytest.approx(-0.4, abs=0.15)
    reads, writes = np.abs(value).max(axis=0) > 0, np.abs(out).max(axis=2) > 0
    assert reads.all()
    assert writes.sum() == 16


def test_surplus_query_columns_are_noise_of_their_own():
    """Not that of another group's target, which at K = 2 D and G = 2 would be the second's."""
    query, key = (np.asarray(kernel, np.float64) for kernel in query_key(KEY, 16, 2, head_dim=32))
    surplus = query[:, 0, 16:].ravel()
    targets = (products.query_key(query, key) - 0.7 * np.eye(16)).reshape(2, -1)
    assert np.abs(np.corrcoef([surplus, *targets])[0, 1:]).max() < 0.2


@pytest.mark.parametrize("beta", [0.5, -0.5])
def test_no_noise_keeps_the_first_coordinates(beta):
    query, key = query_key(KEY, 12, 3, alpha=0.0, beta=beta)
    truth = np.diag([beta] * 4 + [0.0] * 8)
    np.testing.assert_allclose(products.query_key(query, key), [truth] * 3, atol=1e-6)
    value, out = value_out(KEY, 12, 3, alpha=0.0, beta=beta)
    np.testing.assert_allclose(products.value_out(value, out).sum(0), beta * np.eye(12), atol=1e-6)


def test_chunks_change_nothing(monkeypatch):
    whole = query_key(KEY, 16, 8)
    monkeypatch.setattr(attention, "CHUNK_BYTES", 3 * 4 * 16 * 16)
    for kernel, chunked in zip(whole, query_key(KEY, 16, 8), strict=True):
        np.testing.assert_array_equal(kernel, chunked)
