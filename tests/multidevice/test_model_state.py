"""Running statistics are those of the global batch, however it is sharded."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from configs.default import default, model
from mimetic_jax import data
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.state import stream
from tests.training import program_of


def ten_steps(data_axis, fsdp, accumulate):
    config = default()
    config.batch, config.steps, config.max_dispatch = 32, 10, 10
    config.eval.batch, config.accumulate, config.ema = 72, accumulate, 0.9
    config.model = model("tests.plugged:TinyBatchNorm", width=16)
    mesh = make_mesh(data_axis, fsdp, devices=jax.devices()[: data_axis * fsdp])
    program = program_of(config, data.describe("digits"), mesh)
    placed = program.placed(data.load_dataset("digits"))
    keys = stream(0, "data"), stream(0, "dropout")
    state, history = program.run_steps(program.initial_state(0, ()), placed.train, *keys, 10)
    tested = program.test(state.variables, placed), program.test(state.ema, placed)
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(state.model_state))
    return np.asarray(history["loss"]), state.variables, tested


@pytest.mark.parametrize(
    ("mesh", "accumulate"),
    [
        ((8, 1), 1),
        ((2, 4), 2),
        pytest.param((8, 1), 2, marks=pytest.mark.slow),
        pytest.param((2, 4), 1, marks=pytest.mark.slow),
    ],
)
def test_one_device_equals_eight(mesh, accumulate):
    losses, variables, tested = ten_steps(1, 1, accumulate)
    others, same, again = ten_steps(*mesh, accumulate)
    np.testing.assert_allclose(others, losses, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), same, variables
    )
    for one, other in zip(tested, again, strict=True):
        np.testing.assert_allclose(other.values["loss"], one.values["loss"], rtol=1e-5)
