"""Configurations: each runs as its record says, at the sizes and rates of its source."""

import dataclasses
import importlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs import recipes
from mimetic_jax import data, schemes
from mimetic_jax.base.errors import InputError
from mimetic_jax.command import shipped
from mimetic_jax.models.init import base_init
from mimetic_jax.rules import paths
from mimetic_jax.train import config as configs
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.program import Program
from mimetic_jax.train.tasks import TASKS
from tests import training
from tests.images import class_folders
from tests.training import quiet
from tests.typical import typical

FOLDER = shipped.folder()
SHARED = {"arms", "default", "recipes"}  # parts of configurations
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - SHARED - {"__init__"})

RECORDS = {name: importlib.import_module(f"configs.{name}").__doc__ or "" for name in NAMES}
PRINTED = re.compile(r"^Paper: .*\b(tables?|figure) ", re.MULTILINE)
PAPERS = [name for name in NAMES if PRINTED.search(RECORDS[name])]
# Beside those whose comparison is traced, and those of rows of papers.
ARGUMENTS = [
    "cifar10_vit:width=24,depth=2,init=impulse",
    *(f"{name}:init=constant_bias+per_input" for name in ("cifar_mlp_vit", "convnext_cifar")),
    "ptb_char:width=24,depth=2,heads=2,init=strong",
    "small_data_vit:data=cifar10",
]


get = shipped.load


def shallow(config: ConfigDict) -> ConfigDict:
    """The configuration with two layers, or two a stage: blocks are alike, and slow to trace."""
    if "depth" in config.model:
        config.model.depth = 2
    if "depths" in config.model:
        config.model.depths = (2,) * len(config.model.depths)
    return config


def program_of(spec: str, **overrides: Any) -> tuple[ConfigDict, Program]:
    """The first arm and its program, with data of two batches."""
    config = get(spec)
    config.update_from_flattened_dict(overrides)
    arm = next(iter(configs.arms_of(config).values()))
    info = dataclasses.replace(data.describe(arm.data.name), num_train=2 * arm.batch)
    return arm, training.program_of(arm, info, make_mesh(-1, 1))


@typical("spec", NAMES, slow=ARGUMENTS)
def test_checks_pass_and_schemes_find_what_they_write(spec, tmp_path):
    config = get(spec)
    if spec == "images":  # data of one's own is read for its sizes
        config.data.dir = str(class_folders(tmp_path, 40))
    if spec == "text":
        config.data.dir = str(FOLDER.parent / "README.md")
    quiet(shallow(config) if spec in NAMES else config)


@pytest.mark.parametrize("name", NAMES)
def test_records_name_a_paper(name):
    """Commands of records are tested with those of documents."""
    assert "\nPaper: " in RECORDS[name]
    assert name not in PAPERS or "\nDiffers from the paper: " in RECORDS[name]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("imagenet_deit:variant=L", "unknown variant 'L'"),
        ("small_data_vit:data=svhn", "unknown data 'svhn'"),
        ("cifar10_vit:randaugment=n2", "randaugment must be torchvision-nN-mM.* got 'n2'"),
    ],
)
def test_mistakes_in_arguments_are_told(spec, words):
    with pytest.raises(InputError, match=words):
        quiet(get(spec))


def rates(config: ConfigDict, epochs: np.ndarray) -> np.ndarray:
    """The learning rate in the first step of each epoch, or in the middle of one."""
    per_epoch = data.describe(config.data.name).num_train // config.batch
    steps = config.steps or round(config.epochs * per_epoch)
    schedule = configs.schedule_of(config, steps, per_epoch)
    first = jnp.asarray(np.round(epochs * per_epoch))
    return np.asarray(schedule(configs.peak_rate(config), first))


def test_deit_schedule(golden):
    """timm's rates: 1251 steps an epoch, 300 of them, 1e-3 after five of warm-up."""
    config = get("imagenet_deit")
    program = quiet(shallow(get("imagenet_deit"))).arms["default"].program
    assert program.feed.steps_per_epoch == 1251
    assert program.steps == 300 * 1251
    expected = golden("schedules")["deit_epoch_lr"]
    np.testing.assert_allclose(rates(config, np.arange(300)), expected[:300], rtol=1e-5)
    assert rates(config, np.array([5.0]))[0] == pytest.approx(1e-3, rel=1e-3)


def test_structured_schedule_cools_down(golden):
    """310 epochs; under sqrt scaling the same but for 7e-4 instead of 1e-3 above the end."""
    expected = golden("schedules")["deit_epoch_lr"]
    linear = configs.arms_of(get("imagenet_structured:row=linear3,init=impulse"))["impulse"]
    np.testing.assert_allclose(rates(linear, np.arange(310)), expected, rtol=1e-5)
    sqrt = configs.arms_of(get("imagenet_structured:row=sqrt1,init=impulse"))["impulse"]
    scaled = 1e-5 + (expected[5:] - 1e-5) * (5e-4 * 2**0.5 - 1e-5) / (1e-3 - 1e-5)
    np.testing.assert_allclose(rates(sqrt, np.arange(5, 310)), scaled, rtol=1e-5)


@pytest.mark.parametrize(
    ("spec", "name", "epochs"),
    [
        ("cifar10_vit", "triangle_100ep_lr3e_3", 100),
        ("imagenet_resnet_style", "triangle_150ep_lr1e_2", 150),
        ("imagenet_resnet_style:batch=1024", "triangle_150ep_lr1e_2", 150),
    ],
)
def test_triangles(golden, spec, name, epochs):
    """At half epochs; an epoch of an odd number of steps has none in its middle."""
    expected = golden("schedules")[name]
    found = rates(get(spec), np.arange(2 * epochs + 1) / 2)
    np.testing.assert_allclose(found[::2], expected[::2], atol=1e-8)
    atol = 1.01 * expected.max() / epochs / 50
    np.testing.assert_allclose(found[1::2], expected[1::2], atol=atol)


@pytest.mark.parametrize("name", recipes.SMALL_DATA)
def test_small_data_schedule(golden, name):
    """The recipe is the same for every number of steps an epoch: 3 for Flowers, 147 for Food."""
    found = rates(get(f"small_data_vit:data={name}"), np.arange(300))
    np.testing.assert_allclose(found, golden("schedules")["small_epoch_lr"], rtol=1e-5, atol=2e-10)


def test_the_cosine_of_swin():
    """Linear in 20 epochs, then a cosine of the other 280."""
    start, peak, end = 1e-6, 1e-3, 1e-5
    expected = [start, (start + peak) / 2, peak, (peak + end) / 2, end]
    found = rates(get("imagenet_swin"), np.array([0, 10, 20, 160, 300]))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


TRACED = "cifar10_vit"
ALONE = "mlp_population"  # its networks train on one device
OTHERS = [name for name in PAPERS if name not in (TRACED, ALONE) and get(name).task == "images"]


@pytest.mark.parametrize("name", [TRACED, *OTHERS])
def test_batches_divide_over_eight_devices(name):
    config = get(name)
    task = TASKS[config.task]
    for arm in configs.arms_of(config).values():
        _, feed = task.build(arm, task.describe(config), make_mesh(-1, 1))
        configs.check(arm, feed.steps_per_epoch, devices=8)


def trace(program: Program, eval_batch: int) -> None:
    """A dispatch of training and a batch of testing, in shapes alone."""
    shaped, state, arrays = jax.ShapeDtypeStruct, program.shapes, program.feed.shapes()
    key = jax.eval_shape(lambda: jax.random.key(0))
    steps, rates = shaped((), jnp.int32), shaped((2,), jnp.float32)
    given = state, arrays, key, key, steps, rates
    after, history = jax.eval_shape(program.compiled_dispatch, *given)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
    metrics = ("loss", "accuracy", "grad_norm")
    dispatch = (program.feed.max_dispatch,)
    assert jax.tree.map(jnp.shape, history) == dict.fromkeys(metrics, dispatch)
    tested = tuple(shaped((eval_batch, *one.shape[1:]), one.dtype) for one in arrays)
    weights = shaped((eval_batch,), jnp.float32)
    sums = jax.eval_shape(program.task.sums, state.variables, tested, weights)
    assert jax.tree.map(jnp.shape, sums) == dict.fromkeys(("correct", "count", "loss"), ())


@typical("spec", [TRACED], slow=OTHERS)
def test_training_and_testing_trace_at_real_shapes(spec):
    comparison = quiet(shallow(get(spec)))
    programs = {id(arm.program): arm for arm in comparison.arms.values()}
    for arm in programs.values():
        trace(arm.program, arm.config.eval.batch)


@pytest.mark.parametrize("spec", ["imagenet_deit", "imagenet_resnet_style"])
def test_what_timm_doesnt_decay(spec):
    """One step of no gradient moves what decays alone: kernels, and nothing else."""
    config, program = program_of(spec, **{"model.width": 12, "model.depth": 1, "batch": 8})
    params = jax.tree.map(lambda x: jnp.ones(x.shape), program.shapes.params)
    nothing = jax.tree.map(jnp.zeros_like, params)
    state, update = program.optimizer.init(params), jax.jit(program.optimizer.update)
    updates, _ = update(nothing, state, params)
    moved = {
        jax.tree_util.keystr(path): bool(np.abs(change).max() > 0)
        for path, change in jax.tree_util.tree_leaves_with_path(updates)
    }
    assert config.optimizer.weight_decay > 0
    kernels = {path for path in moved if "kernel" in path}
    assert {path for path, moves in moved.items() if moves} == kernels


def test_every_comparison_has_the_default():
    for name in PAPERS:
        assert "default" in configs.arms_of(get(name)), name


def test_the_sweep_is_around_zero():
    """In absolute numbers, of the first kernels that the model draws."""
    config = get("convnext_cifar:init=sweep")
    width = config.model.width
    kernel = base_init(config.model.base).linear(jax.random.key(0), (width, 4 * width))
    arms = configs.arms_of(config)
    b = sorted(arm.scheme[0].b for name, arm in arms.items() if name.startswith("b_"))
    absolute = np.array(b) * float(kernel.std())
    sizes = np.array([0.005, 0.01, 0.02, 0.05])
    np.testing.assert_allclose(absolute, [*-sizes[::-1], *sizes], rtol=0.01)
    baselines = {name for name in arms if not name.startswith("b_")}
    assert {"default", "norm_matched_b_plus_50"} < baselines
    assert arms["learned_sum"].model.learn_sum
    assert arms["normal"].model.base == "timm"
    assert arms["zero_bias"].scheme == (schemes.ConstantBias(0.0),)


@pytest.mark.parametrize(
    ("spec", "std"), [("cifar_mlp_vit", 0.0417), ("imagenet_mlp", 0.02), ("convnext_cifar", 0.0361)]
)
def test_the_constant_bias_is_as_large_as_the_shift(spec, std):
    """Both of b standard deviations of the kernel that the model really draws."""
    config = get(spec)
    width, draw = config.model.width, base_init(config.model.base).linear
    kernel = draw(jax.random.key(0), (width, 4 * width), jnp.float32)
    assert float(kernel.std()) == pytest.approx(std, rel=0.02)
    init = "sweep" if spec == "convnext_cifar" else "constant_bias"
    (shift,) = configs.arms_of(config)["mean_shift"].scheme
    (bias,) = configs.arms_of(get(f"{spec}:init={init}"))["constant_bias"].scheme
    assert isinstance(bias, schemes.ConstantBias)
    assert bias.value == pytest.approx(shift.b * std, rel=0.01)


@pytest.mark.parametrize("arm", ["norm_matched_impulse", "random", "impulse", "box"])
def test_frozen_convmixers_train_the_published_number_of_parameters(arm):
    """540,938 at width 256: neither depthwise filters nor their biases, but batch norms."""
    config = configs.arms_of(get(f"convmixer_cifar:init={arm}"))[arm]
    params = quiet(get(f"convmixer_cifar:init={arm}")).arms[arm].program.shapes.params
    rules = config.optimizer.rate_rules
    leaves, _ = paths.flatten(params)
    assert sum(x.size for path, x in leaves if paths.first_match(rules, path, 1.0) > 0) == 540_938


@pytest.mark.slow
def test_resized_images_are_tested_as_they_are_trained_on():
    """One interpolation for both, so that only crop, flip and colors differ."""
    spec = "cifar10_vit:patch=8,size=64,width=12,depth=1"
    plain = {"data.augment.crop": 0, "data.augment.flip": False, "data.augment.randaugment": ""}
    _, program = program_of(spec, **plain, **{"batch": 2, "data.augment.erase": 0.0})
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    key, labels = jax.random.key(0), jnp.array([0, 1])
    trained, _ = program.task.prepare(key, jnp.int32(0), (jnp.asarray(pixels), labels))
    np.testing.assert_array_equal(trained, program.task.view(jnp.asarray(pixels)))


def test_kentaroys_recipe(golden):
    """Its program has 98 steps an epoch, the last of them of 336 images."""
    config = recipes.kentaroy(400.0, 1e-4)
    program = quiet(config).arms["run"].program
    assert (program.feed.steps_per_epoch, program.steps) == (97, 400 * 97)
    expected = golden("kentaroy_rates")["epochs_400"]
    np.testing.assert_allclose(rates(config, np.arange(400)), expected, atol=1e-11)
