import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, Rule
from mimetic_jax.schemes import Block, Context
from mimetic_jax.schemes.conv import ConvFilters, ConvMimetic
from mimetic_jax.schemes.mlp import AntiCorrelated, ConstantBias, MeanShift
from mimetic_jax.weights.conv import conv_covariance_2022, sample_filters

KEY = jax.random.key(0)
SCHEMES = [ConvMimetic(), *(ConvFilters(kind) for kind in ("random", "impulse", "box"))]
RULES = (Rule(r"dwconv/kernel", "depthwise", "u v 1 c"),)


def network(size=3, channels=6, layers=3, dtype=jnp.float32):
    kernel = jnp.ones((size, size, 1, channels), dtype)
    return {
        f"block_{i}": {"dwconv": {"kernel": kernel, "bias": jnp.ones(channels)}}
        for i in range(layers)
    }


@pytest.mark.parametrize("scheme", SCHEMES)
def test_filters_are_written_and_biases_are_not(scheme):
    new = mimetic_jax.rewrite(KEY, network(), scheme, rules=RULES)
    for i in range(3):
        filters = new[f"block_{i}"]["dwconv"]["kernel"]
        assert filters.shape == (3, 3, 1, 6)
        assert bool((filters != 1).any())
        np.testing.assert_array_equal(new[f"block_{i}"]["dwconv"]["bias"], 1)
    if scheme != ConvFilters("box"):
        kernels = [np.asarray(new[f"block_{i}"]["dwconv"]["kernel"]) for i in range(3)]
        assert np.abs(kernels[0] - kernels[1]).max() > 0.01


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


def test_layers_draw_different_numbers_and_shifts_add_up():
    scheme = MeanShift(per_input=True)
    before, after = mlps(), mimetic_jax.rewrite(KEY, mlps(), scheme)
    shift = jax.tree.map(jnp.subtract, after, before)
    rows = [shift[block]["mlp"]["fc1"]["kernel"][:, 0] for block in ("block_0", "block_1")]
    assert np.abs(rows[0] - rows[1]).max() > 0.1
    twice = mimetic_jax.rewrite(KEY, mlps(), (MeanShift(), MeanShift()))
    first = np.asarray(before["block_0"]["mlp"]["fc1"]["kernel"])
    expected = first + 2 * 0.5 * first.std()
    np.testing.assert_allclose(twice["block_0"]["mlp"]["fc1"]["kernel"], expected, atol=1e-5)


def test_an_mlp_has_both_of_its_layers():
    with pytest.raises(InputError, match="only mlp_in was found"):
        AntiCorrelated().writes(frozenset({"mlp_in", "mlp_in_bias"}))
