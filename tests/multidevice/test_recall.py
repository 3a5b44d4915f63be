"""State space layers train the same however their parameters and their batch are sharded."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from configs.default import default, model
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.state import stream
from mimetic_jax.train.tasks import task_module
from tests.training import program_of


def losses(*axes):
    config = default("recall")
    config.batch, config.steps, config.max_dispatch, config.eval.batch = 32, 3, 3, 32
    config.data.length = 5
    config.model = model("mamba", width=16, depth=2, heads=4, state=8, groups=2, scan=True)
    mesh = make_mesh(*axes, devices=jax.devices()[: np.prod(axes)])
    program = program_of(config, task_module("recall").describe(config), mesh)
    placed = program.placed(None)
    keys = stream(0, "data"), stream(0, "dropout")
    state, history = program.run_steps(program.initial_state(0, ()), placed.train, *keys, 3)
    return np.asarray(history["loss"]), state.params["blocks"]["mixer"]


@pytest.mark.slow
def test_data_fsdp_and_tensor_together():
    expected, _ = losses(1, 1, 1)
    found, mixer = losses(2, 2, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    kernels = {name: mixer[name]["kernel"] for name in ("z", "x", "b", "c", "dt", "out_proj")}
    assert not any(kernel.is_fully_replicated for kernel in kernels.values())
    assert tuple(kernels["x"].sharding.spec) == (None, "fsdp", "tensor")
    assert tuple(kernels["out_proj"].sharding.spec) == (None, "tensor", "fsdp")
