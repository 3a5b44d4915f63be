"""Augmentation on several devices: each one its own images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from ml_collections import ConfigDict

from configs.default import default
from mimetic_jax import data
from mimetic_jax.train.cluster.mesh import BATCH, make_mesh
from mimetic_jax.train.tasks.images import ImageTask


@pytest.fixture
def config() -> ConfigDict:
    config = default()
    config.batch = 32
    config.model.width, config.model.depth, config.model.heads = 16, 1, 2
    config.data.augment.update(flip=True, crop=1, erase=0.5)
    return config


@pytest.mark.parametrize(
    ("axes", "policy"),
    [
        ((2, 2, 2), ""),
        *(
            pytest.param(axes, "torchvision-n2-m9", marks=pytest.mark.slow)
            for axes in ((2, 2, 2), (8, 1))
        ),
    ],
)
def test_no_image_goes_to_another_device(config, axes, policy):
    config.data.augment.randaugment = policy
    digits = data.load_dataset("digits")
    examples = digits.train_images[:32], digits.train_labels[:32].astype(np.int32)
    mesh = make_mesh(*axes, devices=jax.devices())
    sharded = jax.device_put(examples, NamedSharding(mesh, BATCH))
    info = data.describe("digits")
    arguments = jax.random.key(1), jnp.int32(7)
    many = jax.jit(ImageTask(config, info, mesh).prepare).lower(*arguments, sharded).compile()
    for moved in ("all-gather", "all-to-all", "collective-permute"):
        assert moved not in many.as_text()
    alone, _ = jax.jit(ImageTask(config, info).prepare)(*arguments, examples)
    np.testing.assert_array_equal(many(*arguments, sharded)[0], alone)
