"""The alignment of products with the identity, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, check, fit
from mimetic_jax.schemes import Mimetic
from tests.products import cosine, query_key, value_out
from tests.schemes.blocks import kernels

D, H, G, K = 48, 4, 2, 12


def params(seed=0):
    random = np.random.default_rng(seed)
    return {
        f"layer_{i}": {
            name: {"kernel": random.normal(size=shape).astype(np.float32)}
            for name, shape in kernels(D, H, G, K).items()
        }
        for i in range(3)
    }


def test_the_lean_is_the_cosine_with_the_identity():
    tree = mimetic_jax.rewrite(jax.random.key(1), params(), Mimetic())
    for i, layer in enumerate(check(tree)):
        given = {name: leaf["kernel"] for name, leaf in tree[f"layer_{i}"].items()}
        heads = query_key(given["query"], given["key"])
        by_head = value_out(given["value"], given["out"])
        np.testing.assert_allclose(layer.query_key, [*map(cosine, heads)], atol=1e-6)
        np.testing.assert_allclose(layer.value_out_by_head, [*map(cosine, by_head)], atol=1e-6)
        np.testing.assert_allclose(layer.value_out, cosine(by_head.sum(axis=0)), atol=1e-6)


def test_noise_has_the_stated_spread_and_structure_shows():
    alignments = [layer.query_key for seed in range(40) for layer in check(params(seed))]
    assert np.std(alignments) == pytest.approx(1 / D, rel=0.12)
    zeros = check(jax.tree.map(np.zeros_like, params()))
    assert {layer.query_key for layer in zeros} == {(0.0,) * H}
    text = str(check(params()))
    assert "W_Q W_Kᵀ aligned with +I in 0, with -I in 0 of 12 heads" in text
    text = str(check(mimetic_jax.rewrite(jax.random.key(1), params(), Mimetic())))
    assert "W_Q W_Kᵀ aligned with +I in 12, with -I in 0 of 12 heads" in text
    assert "W_V W_out aligned with +I in 0, with -I in 3 of 3 layers" in text


def test_stacked_layers_and_half_of_the_kernels():
    tree = jax.tree.map(lambda *x: jnp.stack(x), *params().values())
    found = check({"blocks": {"attention": tree}})
    assert [layer.name for layer in found] == [f"blocks/attention[{i}]" for i in range(3)]
    pair = {name: {"kernel": tree[name]["kernel"][0]} for name in ("query", "key")}
    alone = check({"layer": pair})
    assert alone[0].value_out is None
    assert len(alone[0].query_key) == H
    assert "W_V W_out aligned" not in str(alone)


def test_the_picture_has_a_point_for_each_head():
    pytest.importorskip("matplotlib")
    figure = check(params()).plot()
    heads, layers = (axes.lines[0].get_xydata() for axes in figure.axes)
    assert len(heads) == 3 * H
    assert len(layers) == 3
    for axes in figure.axes:
        assert axes.get_xticks().tolist() == [0, 1, 2]
    assert figure._repr_png_().startswith(b"\x89PNG"), "what a notebook asks for"
    both = check(params()).plot(check(params(), effective=False))
    assert [len(axes.lines) for axes in both.axes] == [2, 2]


ODD = {"query": {"kernel": np.ones((8, 2, 4))}, "key": {"kernel": np.ones((9, 2, 4))}}


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"mlp": {"kernel": np.ones((4, 4))}}, "no attention with a query and key"),
        ({"qkv": {"kernel": np.ones((4, 12))}}, "no rule and no family of models knows qkv/kernel"),
        (object(), "is not a tree of parameters"),
        ({role: {"kernel": np.full((4, 1, 4), np.nan)} for role in ("query", "key")}, "^attention"),
        ({"layer": ODD}, r"^layer: query and key must have .* got \(8, 2, 4\) and \(9, 2, 4\)"),
    ],
)
def test_bad_input_is_one_line(tree, words):
    with pytest.raises(InputError, match=words):
        check(tree)


def test_traced_weights_have_no_values():
    for read in (check, fit):
        with pytest.raises(InputError, match=r"^layer_0: query has no values yet"):
            jax.jit(read)(jax.tree.map(jnp.asarray, params()))
