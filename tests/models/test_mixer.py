from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, plan, rewrite, schemes
from mimetic_jax.models import Mixer, Model
from mimetic_jax.models.mixer import Block
from tests.golden import convolutions
from tests.golden.convolutions import CLASSES, DEPTH, PATCH, WIDTH
from tests.models.originals import number_of_parameters, stacked, variables_of

KEY = jax.random.key(0)
SMALL = {"num_classes": CLASSES, "width": WIDTH, "depth": DEPTH, "patch": PATCH}


def logits(model, variables):
    return jax.jit(model.apply)(variables, convolutions.images())


def test_number_of_parameters():
    """kentaroy47's for CIFAR-10."""
    assert number_of_parameters(Mixer(num_classes=10)) == 1_819_530
    assert number_of_parameters(Mixer(num_classes=10, scan=True)) == 1_819_530


def test_logits_are_those_of_the_original(golden):
    model = Mixer(**SMALL)
    found = logits(model, variables_of(model))
    np.testing.assert_allclose(found, golden("mixer")["logits"], atol=1e-5)


def loss(model, variables):
    return (model.apply(variables, convolutions.images()) ** 2).sum()


@functools.cache
def gradient(**fields):
    model = Mixer(**SMALL, **fields)
    variables = variables_of(Mixer(**SMALL))
    variables = stacked(variables, DEPTH) if model.scan else variables
    return jax.jit(jax.grad(loss, argnums=1), static_argnums=0)(model, variables)


@pytest.mark.parametrize("remat", [False, True])
def test_scan_is_the_unrolled_function_of_stacked_parameters(remat):
    shapes = jax.eval_shape(Mixer(**SMALL, scan=True).init, KEY, convolutions.images())
    found, expected = gradient(scan=True, remat=remat), stacked(gradient(), DEPTH)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, shapes)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), found, expected
    )


def test_bfloat16_computes_close_to_float32():
    variables = variables_of(Mixer(**SMALL))
    exact = logits(Mixer(**SMALL), variables)
    rough = logits(Mixer(**SMALL, dtype=jnp.bfloat16), variables)
    assert rough.dtype == jnp.float32
    np.testing.assert_allclose(exact, rough, atol=0.05)
    assert not np.array_equal(exact, rough)


def test_everything_starts_from_pytorchs_defaults():
    """Weights and biases U(±1/√fan-in), those of token mixing by the number of tokens."""
    block = Block(token_ratio=4.0, mlp_ratio=0.5, base="torch", dtype=jnp.float32)
    block = jax.jit(block.init)(KEY, jnp.ones((1, 64, 96)))["params"]
    for layer, fan_in in (("token_mixing", 64), ("mlp", 96)):
        for leaf in block[layer]["fc1"].values():
            assert float(jnp.abs(leaf).max()) <= fan_in**-0.5
            assert float(leaf.std()) == pytest.approx((3 * fan_in) ** -0.5, rel=0.15)
    assert float(jnp.abs(block["token_mixing"]["fc2"]["bias"]).max()) <= 256**-0.5


def test_traits():
    model = Model.of("mixer", {"width": 8, "patch": 2, "scan": True}, num_classes=10)
    assert model.grid((16, 8, 3)) == (8, 4)
    assert not model.unrolled().module.scan


@pytest.mark.parametrize("scan", [False, True])
def test_schemes_for_channels_leave_token_mixing(scan):
    model = Mixer(**SMALL, scan=scan)
    params = jax.eval_shape(model.init, KEY, convolutions.images())["params"]
    blocks = ["blocks"] if scan else ["block_0", "block_1"]
    paths = [write.path for write in plan(params, schemes.MeanShift())]
    assert paths == [f"{block}/mlp/fc1/kernel" for block in blocks]
    paths = [write.path for write in plan(params, schemes.ImpulseMixing())]
    assert paths == [
        f"{block}/token_mixing/{fc}/kernel" for block in blocks for fc in ("fc1", "fc2")
    ]


def test_the_mean_reaches_the_channel_mlp_alone():
    params = variables_of(Mixer(**SMALL))["params"]
    shifted = rewrite(KEY, params, schemes.MeanShift(0.5))
    kernel = params["block_1"]["mlp"]["fc1"]["kernel"]
    moved = shifted["block_1"]["mlp"]["fc1"].pop("kernel") - kernel
    np.testing.assert_allclose(moved, 0.5 * kernel.std(), rtol=1e-3)
    shifted["block_1"]["mlp"]["fc1"]["kernel"] = kernel
    jax.tree.map(np.testing.assert_array_equal, shifted["block_1"], params["block_1"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"patch": 3}, "patch 3 does not divide the image 16x16"),
        ({"base": "touch"}, "did you mean 'torch'"),
    ],
)
def test_bad_input(change, words):
    with pytest.raises(InputError, match=words):
        jax.eval_shape(Mixer(**{**SMALL, **change}).init, KEY, convolutions.images())
