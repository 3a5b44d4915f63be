"""Models and groups of runs train the same however parameters and batches are sharded."""

import jax
import numpy as np
import pytest

from configs.default import default, model
from mimetic_jax import data
from mimetic_jax.data.text.corpus import Corpus
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.state import stream
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.tasks import TASKS
from tests.training import evaluations, program_of

SMALL = {"width": 16, "depth": 2, "patch": 2, "scan": True}
MODELS = {
    "mixer": SMALL,
    "convmixer": SMALL | {"filter_size": 3},
    "convnext": SMALL | {"filter_size": 3},
    "gpt": {"width": 16, "depth": 2, "heads": 2, "scan": True},
    "mamba": {"width": 16, "depth": 2, "heads": 4, "state": 8, "groups": 2, "scan": True},
    "tests.plugged:TinyBatchNorm": {"width": 16},
}
WHOLE = {"tests.plugged:TinyBatchNorm"}
"""Models whose few parameters every device has."""


def trained(name, *axes, accumulate=1):
    """Losses of three steps, the state after them, and test losses of parameters and average."""
    config = default({"mamba": "recall", "gpt": "text"}.get(name, "images"))
    config.batch, config.steps, config.max_dispatch, config.eval.batch = 32, 3, 3, 72
    config.accumulate, config.ema = accumulate, 0.9
    config.model = model(name, **MODELS[name])
    if name == "mamba":
        config.data.length = 5
        dataset, info = None, TASKS["recall"].describe(config)
    elif name == "gpt":
        config.data.update(name="ptb_word", length=12, valid=8)
        random = np.random.default_rng(0)
        tokens = (random.integers(0, 50, count).astype(np.int32) for count in (900, 103, 131))
        dataset = Corpus("made up", tuple(map(str, range(50))), *tokens)
        info = TASKS["text"].describe(config, dataset)
    else:
        dataset, info = data.load_dataset("digits"), data.describe("digits")
    mesh = make_mesh(*axes, devices=jax.devices()[: np.prod(axes)])
    program = program_of(config, info, mesh)
    placed = program.feed.place(dataset)
    keys = stream(0, "data"), stream(0, "dropout")
    arrays = next(program.feed.session(placed, keys[0], 0, 3))
    state, history = program.run_steps(program.initial_state(0, ()), arrays, *keys, 3)
    results = [program.evaluate(each, placed)[0] for each in (state.variables, state.ema)]
    tested = [result.values["loss"] for result in results]
    return np.asarray(history["loss"]), state, tested


@pytest.mark.parametrize(
    ("name", "accumulate"),
    [
        ("tests.plugged:TinyBatchNorm", 2),
        pytest.param("tests.plugged:TinyBatchNorm", 1, marks=pytest.mark.slow),
        *(pytest.param(n, 1, marks=pytest.mark.slow) for n in MODELS if n not in WHOLE),
    ],
)
def test_data_fsdp_and_tensor_together(name, accumulate):
    """Also the running statistics: those of the global batch."""
    losses, state, tested = trained(name, 1, 1, 1, accumulate=accumulate)
    others, same, again = trained(name, 2, 2, 2, accumulate=accumulate)
    np.testing.assert_allclose(others, losses, rtol=1e-5)
    np.testing.assert_allclose(again, tested, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        same.model_state,
        state.model_state,
    )
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(same.model_state))
    if name not in WHOLE:
        kernels = [x for x in jax.tree.leaves(same.params["blocks"]) if x.ndim > 2 and x.size > 64]
        assert not any(kernel.is_fully_replicated for kernel in kernels)


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
        found[devices] = (
            [jax.device_get(state.params) for _, state in comparison.states(runs)],
            tested,
        )
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
