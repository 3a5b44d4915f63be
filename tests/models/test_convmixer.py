from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.default import default, model
from mimetic_jax import data, plan, rewrite, schemes
from mimetic_jax.models import ConvMixer
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.state import stream
from tests.golden import convolutions
from tests.golden.convolutions import CLASSES, DEPTH, FILTERS, PATCH, WIDTH
from tests.models.originals import variables_of
from tests.models.values import stacked

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


@pytest.mark.parametrize("scan", [False, True])
def test_schemes_find_the_filters(scan):
    params = variables_of(ConvMixer(**SMALL))
    params = (stacked(params) if scan else params)["params"]
    blocks = ["blocks"] if scan else ["block_0", "block_1"]
    for scheme in (schemes.ConvMimetic(), schemes.ConvFilters("impulse")):
        written = [write.path for write in plan(params, scheme)]
        assert written == [f"{block}/depthwise/kernel" for block in blocks]
    new = rewrite(KEY, params, schemes.ConvFilters("impulse"))
    filters = np.concatenate(
        [new[block]["depthwise"]["kernel"].reshape(-1, 9, 6) for block in blocks]
    )
    assert filters.shape == (DEPTH, 9, 6)
    assert ((filters != 0).sum(axis=1) == 1).all()
    assert not np.array_equal(*filters)


def config_of(**fields):
    config = default()
    config.batch, config.steps, config.max_dispatch = 16, 3, 3
    config.eval.batch, config.log_every = 60, 3
    config.model = model("convmixer", width=6, depth=2, filter_size=3, patch=4)
    config.optimizer.rate_rules = ((r"depthwise/", 0.0),)
    config.optimizer.weight_decay = 0.1
    config.optimizer.schedule = "constant"
    config.scheme = (schemes.ConvFilters("impulse"),)
    config.update(fields)
    return config


@pytest.mark.slow
def test_frozen_filters_and_biases_stay_bit_equal():
    """Through steps with weight decay; everything else moves, the statistics too."""
    config = config_of()
    program = Comparison(config, say=lambda line: None).arms["run"].program
    state = program.initial_state(0, config.scheme)
    before = jax.tree.map(np.asarray, state.variables)
    digits = data.load_dataset("digits")
    examples = digits.train_images, digits.train_labels
    after, _ = program.run_steps(
        state, examples, stream(0, "data"), stream(0, "dropout"), jnp.int32(config.steps)
    )
    assert int(after.step) == config.steps
    equal = {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.array_equal(old, new)
        for (path, old), new in zip(
            jax.tree_util.tree_leaves_with_path(before),
            jax.tree.leaves(after.variables),
            strict=True,
        )
    }
    assert {path for path, same in equal.items() if same} == {
        f"params/block_{layer}/depthwise/{leaf}" for layer in (0, 1) for leaf in ("kernel", "bias")
    }
