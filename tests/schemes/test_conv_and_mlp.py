import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax.schemes import Block, Context
from mimetic_jax.schemes.conv import ConvMimetic
from mimetic_jax.schemes.mlp import AntiCorrelated, ConstantBias, MeanShift
from mimetic_jax.weights.conv import conv_covariance_2022, sample_filters

KEY = jax.random.key(0)


@pytest.mark.parametrize(("layer", "sigma"), [(0, 0.5), (1, 1.125), (2, 2.5)])
def test_width_grows_with_depth(layer, sigma):
    """.5 + .5 t + 3 t²/2 at t = 0, ½, 1."""
    block = Block.of({"depthwise": jnp.ones((5, 5, 4))})
    new = ConvMimetic()(KEY, block, Context(layer, 3))["depthwise"]
    np.testing.assert_array_equal(new, sample_filters(KEY, conv_covariance_2022(5, sigma), 4))


def test_one_layer_is_the_first():
    block = Block.of({"depthwise": jnp.ones((3, 3, 4))})
    alone = ConvMimetic()(KEY, block, Context(0, 1))["depthwise"]
    np.testing.assert_array_equal(alone, ConvMimetic()(KEY, block, Context(0, 9))["depthwise"])


def mlps(dim=8, hidden=16, layers=2):
    def layer(index):
        keys = jax.random.split(jax.random.key(index))
        return {
            "fc1": {
                "kernel": jax.random.normal(keys[0], (dim, hidden)),
                "bias": jnp.ones(hidden),
            },
            "fc2": {
                "kernel": jax.random.normal(keys[1], (hidden, dim)),
                "bias": jnp.ones(dim),
            },
        }

    return {f"block_{i}": {"mlp": layer(i)} for i in range(layers)} | {"norm": jnp.ones(dim)}


def test_values():
    first, second = (np.asarray(mlps()["block_1"]["mlp"][n]["kernel"]) for n in ("fc1", "fc2"))

    def kernel(scheme):
        return mimetic_jax.rewrite(KEY, mlps(), scheme)["block_1"]["mlp"]["fc1"]["kernel"]

    np.testing.assert_allclose(kernel(MeanShift(-0.5)), first - 0.5 * first.std(), atol=1e-6)
    rows = np.asarray(kernel(MeanShift(0.5, per_input=True))) - first
    np.testing.assert_allclose(rows, rows[:, :1].repeat(16, axis=1), atol=1e-6)
    np.testing.assert_allclose(kernel(AntiCorrelated()), (first - second.T) / 2, atol=1e-6)
    tree = mimetic_jax.rewrite(KEY, mlps(), ConstantBias(0.02))
    np.testing.assert_allclose(tree["block_1"]["mlp"]["fc1"]["bias"], 0.02)
