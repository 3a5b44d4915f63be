"""Every model trains the same however its parameters and its batch are sharded."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from configs.default import default, model
from mimetic_jax import data
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.state import stream
from tests.training import program_of

SMALL = {"width": 16, "depth": 2, "patch": 2, "scan": True}
MODELS = {
    "mixer": SMALL,
    "convmixer": SMALL | {"filter_size": 3},
    "convnext": SMALL | {"filter_size": 3},
}


def losses(name, *axes):
    config = default()
    config.batch, config.steps, config.max_dispatch, config.eval.batch = 32, 3, 3, 72
    config.model = model(name, **MODELS[name])
    mesh = make_mesh(*axes, devices=jax.devices()[: np.prod(axes)])
    program = program_of(config, data.describe("digits"), mesh)
    placed = program.placed(data.load_dataset("digits"))
    keys = stream(0, "data"), stream(0, "dropout")
    state, history = program.run_steps(program.initial_state(0, ()), placed.train, *keys, 3)
    return np.asarray(history["loss"]), state.params["blocks"]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_data_fsdp_and_tensor_together(name):
    expected, _ = losses(name, 1, 1, 1)
    found, blocks = losses(name, 2, 2, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    kernels = [leaf for leaf in jax.tree.leaves(blocks) if leaf.ndim > 2]
    assert not any(kernel.is_fully_replicated for kernel in kernels)
