"""Candidates for today's models: what their products are."""

import dataclasses

import jax
import numpy as np
import pytest

from mimetic_jax import InputError, weights
from mimetic_jax.schemes import (
    Block,
    Context,
    HeadIdentity,
    Mimetic,
    OrthogonalValueOut,
    SymmetricQueryKey,
)
from tests.products import query_key, value_out
from tests.schemes.blocks import biases, kernels, ones

KEY = jax.random.key(0)
SIZES = [(24, 4, 2, 6), (24, 4, 4, 9), (24, 2, 2, 5)]


def drawn(*sizes: int) -> Block:
    draws, shapes = np.random.default_rng(1), kernels(*sizes) | biases(*sizes)
    return Block.of({role: np.float32(draws.normal(size=s)) for role, s in shapes.items()})


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_heads_get_an_identity_on_coordinates_of_their_own(sizes):
    dim, heads, groups, head_dim = sizes
    block = drawn(*sizes)
    new = HeadIdentity(-2.0)(KEY, block, Context())
    added = np.asarray(new["key"] - block["key"])
    np.testing.assert_allclose(added[added != 0], -2 * dim**-0.5, rtol=1e-5)
    own = dim // groups
    for head in range(groups):
        rows, columns = np.nonzero(added[:, head])
        np.testing.assert_array_equal(rows, head * own + columns)
        assert len(columns) == min(own, head_dim)
    of_query = new["query"] - block["query"]
    np.testing.assert_allclose(of_query, np.repeat(added, heads // groups, axis=1), atol=1e-5)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_an_induction_head_adds_to_its_last_columns_alone(sizes):
    block = drawn(*sizes)
    whole, part = (
        HeadIdentity.induction(2.0, share)(KEY, block, Context()) for share in (1.0, 0.5)
    )
    head_dim = sizes[-1]
    first = head_dim - head_dim // 2
    for role in ("query", "key"):
        np.testing.assert_array_equal(part[role][..., :first], block[role][..., :first])
        np.testing.assert_array_equal(part[role][..., first:], whole[role][..., first:])
        added = np.asarray(whole[role] - block[role])
        np.testing.assert_allclose(added[added > 0.5], 2, rtol=1e-5)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_of_equal_query_and_key_have_no_negative_eigenvalue(sizes):
    block = drawn(*sizes)
    new = SymmetricQueryKey()(KEY, block, Context())
    for product in query_key(new["query"], block["key"]):
        np.testing.assert_allclose(product, product.T, atol=1e-4)
        assert np.linalg.eigvalsh(product).min() > -1e-3
    repeats = sizes[1] // sizes[2]
    expected = np.repeat(block["key_bias"], repeats, axis=0)
    np.testing.assert_array_equal(new["query_bias"], expected)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_orthogonal_value_and_out_are_an_identity_or_its_projection(sizes):
    dim, _, groups, head_dim = sizes
    scheme = OrthogonalValueOut(2.0, -0.3, 0.5)
    new = scheme(KEY, ones(kernels(*sizes)), Context(0, 4))
    product = value_out(new["value"], new["out"]).sum(axis=0)
    rank = min(dim, groups * head_dim)
    found = np.sort(np.linalg.eigvalsh(product))
    np.testing.assert_allclose(found[:rank], -0.3, atol=1e-4)  # 2 · .3 / √4
    np.testing.assert_allclose(found[rank:], 0, atol=1e-4)


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
    query, key = weights.query_key(KEY, dim, 4, head_dim=12, num_kv_heads=2, alpha=0.3, beta=-0.5)
    expected = np.einsum("dhk,ehk->hed", query, np.repeat(key, 2, axis=1)) / 2
    np.testing.assert_allclose(value_out(narrow["value"], narrow["out"]), expected, atol=1e-4)


def test_a_share_of_the_heads_leans_to_plus_the_identity():
    """By depth: all heads of the first layer, none of the last."""
    scheme = dataclasses.replace(PER_HEAD, positive=lambda depth: 1 - depth)
    block = ones(kernels(24, 8, 4, 24))
    signs = []
    for layer in range(3):
        new = scheme(KEY, block, Context(layer, 3))
        products = value_out(new["value"], new["out"])
        plain = PER_HEAD(KEY, block, Context(layer, 3))
        np.testing.assert_allclose(
            np.abs(products), np.abs(value_out(plain["value"], plain["out"])), atol=1e-5
        )
        signs.append(np.sign(np.trace(products, axis1=1, axis2=2)).tolist())
    assert signs == [[1] * 8, [1] * 4 + [-1] * 4, [-1] * 8]
    for wrong in ({"positive": 0.5, "per_head": False}, {"orientation": "port"}):
        with pytest.raises(InputError, match="set per_head="):
            dataclasses.replace(PER_HEAD, **wrong)
