import jax
import numpy as np
import pytest

from mimetic_jax.weights import same_noise_query_key, same_noise_value_out

KEY = jax.random.key(7)


def off_diagonal(product):
    return product[..., ~np.eye(product.shape[-1], dtype=bool)]


def test_laws_of_the_paper():
    """ZZᵀ with Z [192, 64]: diagonal 1, off-diagonal 1/8 (0.123 measured in REFERENCES 2.1)."""
    query, key = same_noise_query_key(KEY, 192, 3)
    products = np.einsum("dhk,ehk->hde", query, key)
    assert products.diagonal(axis1=1, axis2=2).mean() == pytest.approx(1, abs=0.02)
    assert off_diagonal(products).std() == pytest.approx(1 / 8, rel=0.05)
    assert (np.linalg.eigvalsh(products)[:, -64:] > 0).all()
    value, out = same_noise_value_out(KEY, 192, 3)
    product = np.einsum("dhk,hke->de", value, out)
    assert product.diagonal().mean() == pytest.approx(-1, abs=0.02)
    assert off_diagonal(product).std() == pytest.approx(192**-0.5, rel=0.05)


@pytest.mark.parametrize(("groups", "repeats", "head_dim", "dim"), [(3, 2, 4, 16), (1, 3, 9, 2)])
def test_grouped_heads(groups, repeats, head_dim, dim):
    sizes = {"head_dim": head_dim, "num_kv_heads": groups}
    query, key = same_noise_query_key(KEY, dim, groups * repeats, **sizes)
    np.testing.assert_array_equal(query, np.repeat(key, repeats, axis=1))
    value, out = same_noise_value_out(KEY, dim, groups * repeats, **sizes)
    flat = np.asarray(value, np.float64).reshape(dim, -1)
    summed = np.einsum("dhk,hke->de", np.repeat(value, repeats, axis=1), out)
    np.testing.assert_allclose(summed, -flat @ flat.T, atol=1e-5)
