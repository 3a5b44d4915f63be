import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, Rule
from mimetic_jax.schemes import Block, Context
from mimetic_jax.schemes.conv import ConvMimetic
from mimetic_jax.schemes.mlp import AntiCorrelated, ConstantBias, MeanShift
from mimetic_jax.weights.conv import conv_covariance_2022, sample_filters

KEY = jax.random.key(0)
RULES = (Rule(r"dwconv/kernel", "depthwise", "u v 1 c"),)


def network(size=3, channels=6, layers=3, dtype=jnp.float32):
    kernel = jnp.ones((size, size, 1, channels), dtype)
    return {
        f"block_{i}": {"dwconv": {"kernel": kernel, "bias": jnp.ones(channels)}}
        for i in range(layers)
    }


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


@pytest.mark.parametrize(
    ("scheme", "tree", "words"),
    [
        (ConvMimetic(acceleration=-9.0), network(), r"block_1: sigma -0\.375"),
        (ConvMimetic(), {"dwconv": {"kernel": jnp.ones((3, 5, 1, 4))}}, r"\(3, 5, 4\)"),
    ],
)
def test_bad_input(scheme, tree, words):
    with pytest.raises(InputError, match=words) as caught:
        mimetic_jax.rewrite(KEY, tree, scheme, rules=RULES)
    assert "\n" not in str(caught.value)


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


def test_an_mlp_has_both_of_its_layers():
    with pytest.raises(InputError, match="only mlp_in was found"):
        AntiCorrelated().writes(frozenset({"mlp_in", "mlp_in_bias"}))
