"""`Mimetic(per_head=True)`: what its products are."""

import dataclasses

import jax
import numpy as np
import pytest

from mimetic_jax import InputError, weights
from mimetic_jax.schemes import Context, Mimetic
from tests.products import value_out
from tests.schemes.blocks import kernels, ones

KEY = jax.random.key(0)


PER_HEAD = Mimetic(None, None, 0.3, -0.5, per_head=True)


def test_each_head_has_a_product_of_its_own():
    """αZ + βI at full rank; with fewer columns what `query_key` gives to a head."""
    dim = 48
    new = PER_HEAD(KEY, ones(kernels(dim, 2, 2, dim)), Context())
    first, second = value_out(new["value"], new["out"])
    for product in (first, second):
        assert np.diag(product).mean() == pytest.approx(-0.5, abs=0.03)
        rest = product + 0.5 * np.eye(dim)
        assert rest.std() == pytest.approx(0.3 * dim**-0.5, rel=0.05)
    rests = [(product + 0.5 * np.eye(dim)).ravel() for product in (first, second)]
    assert abs(np.corrcoef(rests)[0, 1]) < 0.1  # independent noise
    narrow = PER_HEAD(KEY, ones(kernels(dim, 4, 2, 12)), Context())
    _, second = jax.random.split(KEY)
    query, key = weights.query_key(
        second, dim, 4, head_dim=12, num_kv_heads=2, alpha=0.3, beta=-0.5
    )
    expected = np.einsum("dhk,ehk->hed", query, np.repeat(key, 2, axis=1)) / 2
    np.testing.assert_allclose(value_out(narrow["value"], narrow["out"]), expected, atol=1e-4)


def test_the_port_is_of_all_heads_together():
    with pytest.raises(InputError, match="set per_head=False"):
        dataclasses.replace(PER_HEAD, orientation="port")
