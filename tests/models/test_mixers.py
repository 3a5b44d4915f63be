"""Mixer, ConvMixer and ConvNeXt: logits of PyTorch's originals, where they start, their filters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from scipy.signal import correlate2d

from mimetic_jax.models import ConvMixer, ConvNeXt, Mixer, depthwise
from mimetic_jax.models.depthwise import Depthwise, depthwise_conv
from tests.golden import convolutions
from tests.golden.convolutions import CLASSES, DEPTH, FILTERS, PATCH, WIDTH
from tests.models.values import filled

SMALL = {"num_classes": CLASSES, "width": WIDTH, "depth": DEPTH, "patch": PATCH}
IMAGES = jnp.asarray(convolutions.images())


def variables_of(model):
    return filled(model, IMAGES, convolutions.weights)


def logits(model, variables):
    return jax.jit(model.apply)(variables, IMAGES)


@pytest.mark.parametrize(("name", "form"), [("mixer", Mixer), ("convnext", ConvNeXt)])
def test_logits_are_those_of_the_original(golden, name, form):
    found = logits(form(**SMALL), variables_of(form(**SMALL)))
    np.testing.assert_allclose(found, golden(name)["logits"], atol=1e-5)


@pytest.mark.parametrize("size", FILTERS)
def test_a_convmixer_is_the_original_in_testing_and_in_training(golden, size):
    """Tested with the given statistics; trained with those of the batch, which they move to."""
    arrays, network = golden("convmixer"), ConvMixer(**SMALL, filter_size=size)
    variables = variables_of(network)
    np.testing.assert_allclose(logits(network, variables), arrays[f"{size}/logits"], atol=1e-5)
    train = functools.partial(network.apply, train=True, mutable=["batch_stats"])
    trained, changed = jax.jit(train)(variables, IMAGES)
    np.testing.assert_allclose(trained, arrays[f"{size}/logits_train"], atol=1e-5)
    before, after = (
        traverse_util.flatten_dict(tree["batch_stats"], sep="/") for tree in (variables, changed)
    )
    count = len(IMAGES) * 8 * 8  # values per channel
    for norm in ("patch_norm", "block_0/norm1", "block_1/norm2"):
        expected = arrays[f"{size}/{norm}/var"]
        np.testing.assert_allclose(after[f"{norm}/mean"], arrays[f"{size}/{norm}/mean"], atol=1e-5)
        # PyTorch keeps n / (n − 1) times the variance that it normalizes by.
        old, new = before[f"{norm}/var"], after[f"{norm}/var"]
        moved = (new - 0.9 * old) * count / (count - 1)
        np.testing.assert_allclose(0.9 * old + moved, expected, atol=1e-5)
        assert np.all(new < expected)


def test_a_learned_sum_starts_at_zero(golden):
    """It adds one number per MLP, and nothing to the first logits."""
    variables, model = variables_of(ConvNeXt(**SMALL)), ConvNeXt(**SMALL, learn_sum=True)
    apply, expected = jax.jit(model.apply), golden("convnext")["logits"]
    for value, same in ((0, True), (1, False)):
        for layer in range(DEPTH):
            variables["params"][f"block_{layer}"]["mlp"]["sum"] = np.float32(value)
        assert np.allclose(apply(variables, IMAGES), expected, atol=1e-5) == same


def _case(height, width, size):
    x = jax.random.normal(jax.random.key(0), (2, height, width, 3))
    kernel = jax.random.normal(jax.random.key(1), (size, size, 3))
    return x, kernel


@pytest.mark.parametrize(
    ("height", "width", "size"), [(8, 8, 3), (8, 8, 7), (8, 8, 8), (6, 9, 5), (2, 3, 8), (4, 4, 1)]
)
def test_it_is_scipys_correlation_of_each_channel(height, width, size):
    x, kernel = _case(height, width, size)
    sides = (size - 1) // 2, size // 2
    padded = np.pad(np.float64(x), [(0, 0), sides, sides, (0, 0)])
    got = jax.jit(depthwise_conv)(x, kernel)
    for image, channel in np.ndindex(2, 3):
        one = padded[image, ..., channel], np.float64(kernel[..., channel])
        expected = correlate2d(*one, "valid")
        np.testing.assert_allclose(got[image, ..., channel], expected, atol=1e-5)


@pytest.mark.parametrize("size", [3, 5, 7, 8])
def test_all_forms_and_their_gradients_agree(size):
    x, kernel = _case(8, 8, size)

    def loss(form):
        return lambda x, kernel: jnp.sin(form(x, kernel)).sum()

    *ours, theirs = (
        jax.jit(jax.grad(loss(form), argnums=(0, 1)))(x, kernel)
        for form in (depthwise._of_pixels, depthwise._of_rows, depthwise._grouped)
    )
    for got, expected in zip(ours[0] + ours[1], theirs + theirs, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("platform", "convolves"), [("cpu", False), ("cuda", True), ("tpu", True)])
def test_each_platform_gets_its_own_form(platform, convolves):
    program = jax.jit(depthwise_conv).trace(*_case(8, 8, 3)).lower(lowering_platforms=(platform,))
    assert ("stablehlo.convolution" in program.as_text()) is convolves


def test_the_layer_has_the_parameters_of_flaxs_own_and_computes_in_its_dtype():
    layer = Depthwise(size=5, dtype=jnp.bfloat16)
    images = jnp.ones((1, 8, 8, 4))
    output, variables = jax.eval_shape(layer.init_with_output, jax.random.key(0), images)
    shapes = {name: leaf.shape for name, leaf in variables["params"].items()}
    assert shapes == {"kernel": (5, 5, 1, 4), "bias": (4,)}
    assert output.dtype == jnp.bfloat16
