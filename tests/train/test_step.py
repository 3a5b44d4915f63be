"""A step of training and of testing, by NumPy: the loss, the batch, and what goes along."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from PIL import Image

from configs.default import model
from mimetic_jax import InputError, data
from mimetic_jax.train import step as steps
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.start import initial_state
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.tasks.images import ImageTask
from tests.training import evaluations, quiet, tiny, trained
from tests.typical import typical

SGD = optax.sgd(1.0)
DIGITS = data.describe("digits")


def make_train_step(*arguments, **options):
    return jax.jit(steps.make_train_step(*arguments, **options))


DRAWS = np.random.default_rng(1)
PIXELS = DRAWS.integers(0, 256, (16, 8, 8, 1), np.uint8)
LABELS = DRAWS.integers(0, 10, 16, np.int32)


@functools.cache
def digits_task(**overrides):
    return ImageTask(tiny(**{"data.augment.crop": 0, "model.patch": 4} | overrides), DIGITS)


def with_statistics(**overrides):
    """Of a model with running averages and a counter of its own."""
    config = tiny(scheme=(), **{"optimizer.warmup": 0} | overrides)
    config.model = model("tests.plugged:TinyBatchNorm")
    return config


@functools.cache
def batch_of(task):
    return jax.jit(task.prepare)(jax.random.key(3), jnp.int32(0), (PIXELS, LABELS))


@functools.cache
def initial(task):
    variables = jax.jit(task.init)(jax.random.key(0))
    params = variables.pop("params")
    state = TrainState(step=jnp.int32(0), params=params, opt_state=SGD.init(params))
    return state.replace(model_state=variables)


def test_loss_is_cross_entropy_with_smoothed_labels():
    task = digits_task(label_smoothing=0.1)
    state, (images, targets) = initial(task), batch_of(task)
    _, metrics = make_train_step(task.loss, SGD)(state, (images, targets), jax.random.key(0), 0.1)
    logits = np.asarray(jax.jit(task.model.module.apply)(state.variables, images), np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    truth = 0.9 * np.eye(10)[np.asarray(LABELS)] + 0.01
    np.testing.assert_allclose(metrics["loss"], -(truth * log_p).sum(-1).mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["accuracy"], (logits.argmax(-1) == LABELS).mean())


def test_padding_counts_nothing():
    task = digits_task()
    variables = initial(task).variables
    weights = jnp.ones(16).at[10:].set(0)
    count = jax.jit(task.sums)
    padded = count(variables, (PIXELS, LABELS), weights)
    alone = count(variables, (PIXELS[:10], LABELS[:10]), jnp.ones(10))
    assert int(padded["count"]) == 10
    assert int(padded["correct"]) == int(alone["correct"])
    np.testing.assert_allclose(padded["loss"], alone["loss"], rtol=1e-5)


@pytest.mark.slow
def test_another_size_than_the_images_have():
    """Trained on and tested on at the size that the model is for."""
    task = digits_task(**{"data.size": 16})
    images, _ = batch_of(task)
    assert images.shape == (16, 16, 16, 1)
    assert task.view(PIXELS).shape == (16, 16, 16, 1)
    assert task.grid() == (4, 4)
    assert initial(task).params["pos_embed"].shape == (1, 17, 16)


@typical("alpha", [{"data.mix.mixup": 0.8}], slow=[{"data.mix.cutmix": 1.0}])
def test_mixed_targets_reach_the_loss(alpha):
    images, targets = batch_of(digits_task(**alpha))
    plain_images, plain = batch_of(digits_task())
    np.testing.assert_allclose(targets.sum(-1), 1, rtol=1e-5)
    assert not np.allclose(images, plain_images)
    assert not np.allclose(targets, plain)


def task(fraction: float, shape: tuple[int, int, int], streamed: bool = False) -> ImageTask:
    config = tiny(**{"data.eval_fraction": fraction, "model.patch": 4})
    info = dataclasses.replace(data.describe("cifar10"), image_shape=shape, streamed=streamed)
    return ImageTask(config, info)


def test_images_of_the_models_size_are_cut_as_well():
    """Resize(10) and CenterCrop(8), written out in Pillow, within a level."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)
    size, method = (10, 10), Image.Resampling.BICUBIC
    resized = (Image.fromarray(image).resize(size, method) for image in pixels)
    expected = np.stack([np.asarray(image)[1:9, 1:9] for image in resized])
    whole, streamed = task(1.0, (8, 8, 3)), task(0.8, (8, 8, 3), streamed=True)
    level = 1.01 / 255 / min(whole.info.std)
    found = task(0.8, (8, 8, 3)).view(pixels)
    np.testing.assert_allclose(found, whole.view(expected), rtol=0, atol=level)
    np.testing.assert_array_equal(streamed.view(pixels), whole.view(pixels))


def test_a_square_view_of_other_images_is_refused():
    with pytest.raises(InputError, match=r"eval_fraction 0\.8 cuts a square, but images are 8x12"):
        task(0.8, (8, 12, 3))
    assert task(1.0, (8, 12, 3)).view(np.zeros((2, 8, 12, 3), np.uint8)).shape == (2, 8, 12, 3)


@pytest.mark.slow
def test_holes_are_mixed_or_whole():
    """Erased last, an image is the mixed one but for its own hole."""

    def prepared(**augment):
        fields = {f"data.augment.{name}": value for name, value in augment.items()}
        task = digits_task(**{"data.augment.erase_mode": "const", "data.mix.mixup": 50.0, **fields})
        images, _ = jax.jit(task.prepare)(jax.random.key(3), jnp.int32(0), (bright, LABELS))
        return np.asarray(images)

    # No pixel has the mean of the data, which erasing writes; mixup's λ is close to 1/2.
    bright = DRAWS.integers(128, 256, (16, 8, 8, 1), np.uint8)
    mixed, last, before = prepared(), prepared(erase=1.0, erase_mixed=True), prepared(erase=1.0)
    hole = last == 0
    assert hole.any(axis=(1, 2, 3)).all()
    np.testing.assert_allclose(last, np.where(hole, 0, mixed), atol=1e-6)
    changed = ~np.isclose(before, mixed, atol=1e-6)
    # An image's own hole and that of the image it is mixed with.
    np.testing.assert_array_equal(changed, hole | hole[::-1])
    np.testing.assert_array_equal(before == 0, hole & hole[::-1])


@pytest.fixture(scope="module")
def statistics():
    """The task of a model with running averages, its first state and its batch."""
    task = ImageTask(with_statistics(), DIGITS)
    return task, initial(task), batch_of(task)


def normalized(state, images):
    """What enters the normalization, in float64."""
    kernel = np.asarray(state.params["Conv_0"]["kernel"], np.float64)
    images = np.pad(np.asarray(images, np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    return np.einsum("bhwcij,ijcd->bhwd", windows, kernel)


def test_running_averages_are_of_the_batch(statistics):
    task, state, batch = statistics
    after, _ = make_train_step(task.loss, SGD)(state, batch, jax.random.key(4), 0.1)
    found, x = after.model_state["batch_stats"]["BatchNorm_0"], normalized(state, batch[0])
    np.testing.assert_allclose(found["mean"], 0.1 * x.mean((0, 1, 2)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["var"], 0.9 + 0.1 * x.var((0, 1, 2)), rtol=1e-4)


def test_the_average_has_parameters_statistics_and_the_last_count(statistics):
    task, state, batch = statistics
    step = make_train_step(task.loss, SGD, ema=0.75)
    first, _ = step(state.replace(ema=state.variables), batch, jax.random.key(4), 0.1)
    second, _ = step(first, batch, jax.random.key(4), 0.1)
    *averaged, counters = (second.ema.pop(x) for x in ("params", "batch_stats", "counters"))
    every = [[s.variables[x] for x in ("params", "batch_stats")] for s in (state, first, second)]
    expected = jax.tree.map(lambda a, b, c: 0.75 * (0.75 * a + 0.25 * b) + 0.25 * c, *every)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), averaged, expected)
    assert (int(counters["calls"]), second.ema) == (2, {})


@pytest.mark.slow
def test_evaluation_takes_the_running_averages(tmp_path):
    comparison = quiet(with_statistics())
    comparison.train(str(tmp_path))
    arm, run = comparison.arms["run"], Run.of(tmp_path, "run", 0)
    state = comparison.restored(run)
    digits, task = data.load_dataset("digits"), arm.program.task
    images = task.view(jnp.asarray(digits.test_images))
    logits = task.model.module.apply(state.variables, images, train=False)
    right = np.asarray(logits.argmax(-1)) == digits.test_labels
    assert evaluations(run)[-1]["eval_accuracy"] == pytest.approx(right.mean())
    assert int(state.model_state["counters"]["calls"]) == 12


@pytest.mark.slow
def test_a_warm_start_takes_the_statistics_too(tmp_path):
    teacher = trained(with_statistics(), tmp_path)
    said, config = [], with_statistics(init_from=f"{tmp_path}/runs/run/0", steps=1)
    state = initial_state(Comparison(config, say=said.append).arms["run"], 0, said.append)
    jax.tree.map(np.testing.assert_array_equal, state.model_state, teacher.model_state)
    expected = teacher.params["Conv_0"]["kernel"]
    np.testing.assert_array_equal(state.params["Conv_0"]["kernel"], expected)
    assert said == [f"starts from 6 of 8 parameters of {tmp_path}/runs/run/0"]
