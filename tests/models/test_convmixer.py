import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.models import ConvMixer
from tests.golden import convolutions
from tests.golden.convolutions import CLASSES, DEPTH, FILTERS, PATCH, WIDTH
from tests.models.originals import variables_of

KEY = jax.random.key(0)
SMALL = {
    "num_classes": CLASSES,
    "width": WIDTH,
    "depth": DEPTH,
    "patch": PATCH,
    "filter_size": 3,
}


@pytest.mark.parametrize("size", FILTERS)
def test_logits_are_those_of_the_original(golden, size):
    """Tested with the given statistics; trained with those of the batch, which they move to."""
    arrays = golden("convmixer")
    network = ConvMixer(**{**SMALL, "filter_size": size})
    variables = variables_of(network)
    images = convolutions.images()
    tested = jax.jit(network.apply)(variables, images)
    np.testing.assert_allclose(tested, arrays[f"{size}/logits"], atol=1e-5)
    train = functools.partial(network.apply, train=True, mutable=["batch_stats"])
    trained, changed = jax.jit(train)(variables, images)
    np.testing.assert_allclose(trained, arrays[f"{size}/logits_train"], atol=1e-5)
    before = variables["batch_stats"]
    count = len(images) * 8 * 8  # values per channel
    for block, norm in (("", "patch_norm"), ("block_0", "norm1"), ("block_1", "norm2")):
        old, new = (
            (tree[block] if block else tree)[norm] for tree in (before, changed["batch_stats"])
        )
        path = f"{size}/{block}/{norm}" if block else f"{size}/{norm}"
        np.testing.assert_allclose(new["mean"], arrays[f"{path}/mean"], atol=1e-5)
        # PyTorch keeps n / (n − 1) times the variance that it normalizes by.
        moved = (new["var"] - 0.9 * old["var"]) * count / (count - 1)
        np.testing.assert_allclose(0.9 * old["var"] + moved, arrays[f"{path}/var"], atol=1e-5)
        assert np.all(new["var"] < arrays[f"{path}/var"])


def test_filters_start_from_pytorchs_default():
    """U(±1/k), filters and biases."""
    network = ConvMixer(num_classes=2, width=64, depth=1, filter_size=4)
    params = jax.jit(network.init)(KEY, jnp.ones((1, 8, 8, 1)))["params"]
    for leaf in params["block_0"]["depthwise"].values():
        assert float(jnp.abs(leaf).max()) <= 1 / 4
        assert float(leaf.std()) == pytest.approx(1 / 4 / 3**0.5, rel=0.15)
