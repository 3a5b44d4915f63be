"""Runs of a group that are sharded over devices are the runs of one device."""

import jax
import numpy as np
import pytest

from configs.default import default, model
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.runs import Run
from tests.training import evaluations


def comparison_on(devices, seeds=11):
    config = default()
    config.seeds, config.together, config.mesh.runs = tuple(range(seeds)), 8, devices
    config.batch, config.steps, config.max_dispatch = 16, 4, 4
    config.model = model("vit", width=16, depth=1, heads=2, patch=4, dropout=0.1)
    config.optimizer.name, config.optimizer.weight_decay = "sgd", 0.0
    config.eval.batch = 180
    config.log_every = config.checkpoint_every = 2
    return Comparison(config, lambda line: None, devices=jax.devices()[:devices])


@pytest.mark.slow
def test_eight_devices_have_the_runs_of_one(tmp_path):
    """The second group of three runs is filled up for eight devices, and what fills is gone."""
    found = {}
    for devices in (1, 8):
        comparison, workdir = comparison_on(devices), tmp_path / str(devices)
        comparison.train(workdir)
        runs = [Run.of(workdir, "run", seed) for seed in range(11)]
        assert [len(run.group) for run in runs] == 8 * [8] + 3 * [3]
        tested = [evaluations(run)[-1]["eval_loss"] for run in runs]
        found[devices] = [params for _, _, params in comparison.weights(runs)], tested
    (params, tested), (others, theirs) = found.values()
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), params, others)
    np.testing.assert_allclose(tested, theirs, rtol=1e-5)


def test_devices_exchange_nothing():
    program = comparison_on(8).arms["run"].program
    arrays, keys = program.feed.shapes(), program.keys(range(8))
    count, scales = jax.ShapeDtypeStruct((), np.int32), jax.ShapeDtypeStruct((8,), np.float32)
    lowered = program.run_together.lower(program.shapes_of(8), arrays, *keys, count, scales)
    text = lowered.compile().as_text()
    assert not [name for name in ("all-reduce", "all-gather", "all-to-all") if f" {name}(" in text]
