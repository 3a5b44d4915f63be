"""Attention that knows the grid: ConViT's own code, and a convolution that wraps around."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import correlate

from mimetic_jax import plan
from mimetic_jax.models import Attention, ViT
from mimetic_jax.models.local_attention import ConvAttention, GatedAttention
from mimetic_jax.schemes import Mimetic

KEY = jax.random.key(0)
SMALL = {"num_classes": 5, "width": 16, "depth": 1, "heads": 4, "patch": 2}


def images(batch=2, side=8):
    return jax.random.normal(jax.random.key(1), (batch, side, side, 3))


def drawn(layer, count, width):
    x = jax.random.normal(jax.random.key(2), (2, count, width))
    return jax.jit(layer.init)(KEY, x)["params"], x


def gpsa_weights():
    """Kernels [20, 20] and an input [2, 16, 20] of the golden arrays."""
    rng = np.random.default_rng(0)
    drawn = {name: rng.normal(size=(20, 20)) for name in ("query", "key", "out")}
    drawn["x"] = rng.normal(size=(2, 16, 20))
    return {name: (array / 2).astype(np.float32) for name, array in drawn.items()}


@pytest.mark.parametrize("heads", [4, 5])
def test_gated_attention_is_convits(golden, heads):
    original, given = golden("gpsa"), gpsa_weights()
    layer = GatedAttention(heads, qkv_bias=False, grid=(4, 4))
    params, _ = drawn(layer, 16, 20)
    np.testing.assert_allclose(params["value"]["kernel"].reshape(20, 20), np.eye(20))
    local = original[f"position_{heads}"]
    np.testing.assert_allclose(params["position"]["kernel"][:, :4], local[:4].T)
    params["position"]["kernel"] = jnp.asarray(local.T)
    for name in ("query", "key"):
        params[name]["kernel"] = given[name].reshape(20, heads, -1)
    params["out"]["kernel"] = given["out"].reshape(heads, -1, 20)
    got = jax.jit(layer.apply)({"params": params}, given["x"])
    np.testing.assert_allclose(got, original[f"output_{heads}"], atol=1e-5)


def plain(params, x):
    params = {name: params[name] for name in ("query", "key", "value", "out")}
    return jax.jit(Attention(num_heads=4).apply)({"params": params}, x)


@pytest.mark.parametrize("form", ["conv_logits", "conv_added"])
def test_without_gamma_it_is_plain_attention(form):
    layer = ConvAttention(4, form=form, grid=(4, 4))
    params, x = drawn(layer, 17, 16)
    params["gamma"] = jnp.zeros(())
    got = jax.jit(layer.apply)({"params": params}, x)
    np.testing.assert_allclose(got, plain(params, x), atol=1e-5)


def test_filters_start_normal_of_variance_one_ninth():
    layer, x = ConvAttention(400, grid=(2, 2)), jnp.ones((1, 4, 400))
    filters = jax.jit(lambda key: layer.init(key, x)["params"]["filters"])(KEY)
    assert float(filters.std()) == pytest.approx(1 / 3, rel=0.05)
    assert float(jnp.abs(filters).max()) > 0.7


@pytest.mark.parametrize("front", [0, 1])
def test_what_is_added_is_a_convolution_that_wraps_around(front):
    """Tokens in front of the grid neither give nor get any of it."""
    layer = ConvAttention(4, form="conv_added", grid=(4, 5))
    params, x = drawn(layer, 20 + front, 16)
    params["gamma"] = jnp.asarray(0.7)
    params["out"]["kernel"] = jnp.eye(16).reshape(4, 4, 16)
    got = jax.jit(layer.apply)({"params": params}, x) - plain(params, x)
    value = np.einsum("bnd,dhk->bnhk", x, params["value"]["kernel"])[:, front:]
    expected = np.empty((2, 20, 4, 4))
    for image, head, column in np.ndindex(2, 4, 4):
        grid = value[image, :, head, column].reshape(4, 5)
        convolved = correlate(grid, params["filters"][:, :, head], mode="grid-wrap")
        expected[image, :, head, column] = 0.7 * convolved.ravel()
    expected = expected.reshape(2, 20, 16)
    np.testing.assert_allclose(got[:, front:], expected, atol=2e-5)
    np.testing.assert_allclose(got[:, :front], 0, atol=1e-6)


def test_its_softmax_form_adds_positive_rows_of_sum_one():
    layer = ConvAttention(4, form="conv_softmax", grid=(4, 4))
    params, x = drawn(layer, 16, 16)
    params["value"] = {"kernel": jnp.zeros((16, 4, 4)), "bias": jnp.ones((4, 4))}
    params["out"]["kernel"] = jnp.eye(16).reshape(4, 4, 16)
    np.testing.assert_allclose(jax.jit(layer.apply)({"params": params}, x), 2, atol=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {"attention": "gpsa", "pool": "mean", "qkv_bias": False},
        {"attention": "conv_logits", "layer_scale": "skip", "scan": True},
        {"attention": "conv_added", "layer_scale": "branch", "dtype": jnp.bfloat16},
        {"attention": "conv_softmax", "learn_sum": True},
    ],
    ids=str,
)
def test_every_form_takes_the_attention_schemes(fields):
    """Its gradients are those of tests/compiled."""
    model = ViT(**SMALL, **fields)
    shapes = jax.eval_shape(model.init, KEY, images())["params"]
    assert {write.role for write in plan(shapes, Mimetic())} >= {"query", "key", "value", "out"}
