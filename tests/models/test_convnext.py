import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import rewrite, schemes
from mimetic_jax.models import ConvNeXt
from tests.golden import convolutions
from tests.golden.convolutions import CLASSES, DEPTH, PATCH, WIDTH
from tests.models.originals import variables_of

KEY = jax.random.key(0)
SMALL = {"num_classes": CLASSES, "width": WIDTH, "depth": DEPTH, "patch": PATCH}


def test_logits_are_those_of_the_original(golden):
    network = ConvNeXt(**SMALL)
    found = jax.jit(network.apply)(variables_of(network), convolutions.images())
    np.testing.assert_allclose(found, golden("convnext")["logits"], atol=1e-5)


@functools.cache
def drawn(base):
    network = ConvNeXt(num_classes=10, width=64, depth=1, base=base)
    return jax.jit(network.init)(KEY, jnp.ones((1, 8, 8, 3)))["params"]


def test_pytorchs_defaults():
    """U(±1/√fan-in), weights and biases."""
    params, block = drawn("torch"), drawn("torch")["block_0"]
    layers = [
        (params["patch_embed"], 12),
        (block["depthwise"], 49),
        (block["mlp"]["fc1"], 64),
        (block["mlp"]["fc2"], 256),
        (params["head"], 64),
    ]
    for layer, fan_in in layers:
        assert float(layer["kernel"].std()) == pytest.approx((3 * fan_in) ** -0.5, rel=0.1)
        for leaf in layer.values():
            assert 0.7 < float(jnp.abs(leaf).max()) * fan_in**0.5 <= 1


def test_convnexts_own_initialization():
    """A normal of .02 and zero biases, in every layer."""
    params, block = drawn("timm"), drawn("timm")["block_0"]
    for layer in (params["patch_embed"], block["depthwise"], block["mlp"]["fc1"], params["head"]):
        assert float(layer["kernel"].std()) == pytest.approx(0.02, rel=0.1)
        assert not layer["bias"].any()


def test_a_learned_sum_starts_at_zero(golden):
    """It adds one number per MLP, and nothing to the first logits."""
    network = ConvNeXt(**SMALL, learn_sum=True)
    params = variables_of(ConvNeXt(**SMALL))["params"]
    for layer in range(DEPTH):
        params[f"block_{layer}"]["mlp"]["sum"] = np.float32(0)
    found = jax.jit(network.apply)({"params": params}, convolutions.images())
    np.testing.assert_allclose(found, golden("convnext")["logits"], atol=1e-5)


def test_a_mean_leaves_the_first_forward_pass_unchanged():
    """What enters the MLP sums to zero behind a fresh norm; eq. 1's means do change the output."""
    network = ConvNeXt(**SMALL)
    params = variables_of(network)["params"]
    for layer in range(DEPTH):
        norm = params[f"block_{layer}"]["norm"]
        norm |= {"scale": np.ones_like(norm["scale"]), "bias": np.zeros_like(norm["bias"])}
    logits = jax.jit(lambda params: network.apply({"params": params}, convolutions.images()))
    before = logits(params)
    np.testing.assert_allclose(logits(rewrite(KEY, params, schemes.MeanShift())), before, atol=1e-5)
    changed = logits(rewrite(KEY, params, schemes.MeanShift(per_input=True)))
    assert np.abs(changed - before).max() > 0.01
