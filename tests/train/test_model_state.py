"""Collections other than the parameters: trained, averaged, tested and resumed like these."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs.default import model
from mimetic_jax import data
from mimetic_jax.train import step as steps
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.start import initial_state
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.tasks.images import ImageTask
from tests.training import evaluations, quiet, tiny, trained


def config_of(**overrides):
    config = tiny(scheme=(), **{"optimizer.warmup": 0} | overrides)
    config.model = model("tests.plugged:TinyBatchNorm")
    return config


@pytest.fixture(scope="module")
def one_step():
    task = ImageTask(config_of(), data.describe("digits"))
    variables = jax.jit(task.init)(jax.random.key(0))
    params = variables.pop("params")
    optimizer = optax.sgd(1.0)
    state = TrainState(
        step=jnp.int32(0), params=params, model_state=variables, opt_state=optimizer.init(params)
    )
    pixels = jax.random.randint(jax.random.key(1), (16, 8, 8, 1), 0, 256).astype(jnp.uint8)
    labels = jax.random.randint(jax.random.key(2), (16,), 0, 10)
    batch = task.prepare(jax.random.key(3), jnp.int32(0), (pixels, labels))

    def step(state=state, **options):
        train_step = jax.jit(steps.make_train_step(task.loss, optimizer, **options))
        return train_step(state, batch, jax.random.key(4), 0.1)[0]

    return state, batch, step


def normalized(state, batch):
    """What enters the normalization, in float64."""
    kernel = np.asarray(state.params["Conv_0"]["kernel"], np.float64)
    images = np.pad(np.asarray(batch[0], np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    return np.einsum("bhwcij,ijcd->bhwd", windows, kernel)


def test_running_averages_are_of_the_batch(one_step):
    state, batch, step = one_step
    found = step().model_state["batch_stats"]["BatchNorm_0"]
    x = normalized(state, batch)
    np.testing.assert_allclose(found["mean"], 0.1 * x.mean((0, 1, 2)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["var"], 0.9 + 0.1 * x.var((0, 1, 2)), rtol=1e-4)


def test_the_average_has_parameters_statistics_and_the_last_count(one_step):
    state, _, step = one_step
    first = step(state.replace(ema=state.variables), ema=0.75)
    second = step(first, ema=0.75)
    *averaged, counters = (second.ema.pop(x) for x in ("params", "batch_stats", "counters"))
    every = [[s.variables[x] for x in ("params", "batch_stats")] for s in (state, first, second)]
    expected = jax.tree.map(lambda a, b, c: 0.75 * (0.75 * a + 0.25 * b) + 0.25 * c, *every)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), averaged, expected)
    assert (int(counters["calls"]), second.ema) == (2, {})


@pytest.mark.slow
def test_evaluation_takes_the_running_averages(tmp_path):
    comparison = quiet(config_of())
    comparison.train(str(tmp_path))
    arm, run = comparison.arms["run"], Run.of(tmp_path, "run", 0)
    state = comparison.restored(run)
    images = data.load_dataset("digits").test_images
    task = arm.program.task
    logits = task.model.module.apply(state.variables, task.view(jnp.asarray(images)), train=False)
    right = np.asarray(logits.argmax(-1)) == data.load_dataset("digits").test_labels
    assert evaluations(run)[-1]["eval_accuracy"] == pytest.approx(right.mean())
    assert int(state.model_state["counters"]["calls"]) == 12


@pytest.mark.slow
def test_a_warm_start_takes_the_statistics_too(tmp_path):
    teacher = trained(config_of(), tmp_path)
    config = config_of(init_from=f"{tmp_path}/runs/run/0", steps=1)
    said = []
    comparison = Comparison(config, say=said.append)
    state = initial_state(comparison.arms["run"], 0, said.append)
    jax.tree.map(np.testing.assert_array_equal, state.model_state, teacher.model_state)
    expected = teacher.params["Conv_0"]["kernel"]
    np.testing.assert_array_equal(state.params["Conv_0"]["kernel"], expected)
    assert said == [f"starts from 6 of 8 parameters of {tmp_path}/runs/run/0"]
