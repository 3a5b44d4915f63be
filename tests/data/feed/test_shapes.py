"""The shapes that feeds promise to compilers are those of what they train on."""

from __future__ import annotations

import types

import jax
import numpy as np
import pytest

from configs.default import default
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.tasks import TASKS


def text():
    config = default("text")
    config.batch, config.data.length, config.data.valid, config.eval.batch = 4, 8, 6, 2
    return config


def recall():
    config = default("recall")
    config.batch, config.data.length, config.data.num_test, config.eval.batch = 4, 8, 10, 4
    return config


def images():
    config = default()
    config.eval.batch = 20
    return config


@pytest.mark.parametrize("config", [images(), text(), recall()], ids=lambda config: config.task)
def test_shapes_are_those_of_the_data(config):
    task = TASKS[config.task]
    info, dataset = task.describe(config), None
    if config.task == "images":
        dataset = task.load(config)
    elif config.task == "text":
        sizes = info.num_train, info.num_valid, info.num_test
        dataset = types.SimpleNamespace(
            **{
                name: np.zeros(size, np.int32)
                for name, size in zip(("train", "valid", "test"), sizes, strict=True)
            }
        )
    _, feed = task.build(config, info, make_mesh(devices=jax.devices()[:1]))
    arrays = next(feed.session(feed.place(dataset), jax.random.key(0), 0, 1))
    assert described(arrays) == described(feed.shapes())


def described(tree):
    return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]
