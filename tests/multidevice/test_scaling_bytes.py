"""The bytes of train/scaling.py against the collectives that XLA's partitioner emits.

Its output is the same on all platforms; what each makes of it, such as a reduce-scatter of an
all-reduce and a slice, comes later. Counted are the results of what is sent, scalars aside.
"""

import collections
import dataclasses
import math
import re

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import NamedSharding

from configs.default import default
from mimetic_jax import data
from mimetic_jax.analysis.scaling import work
from mimetic_jax.train.cluster import mesh as meshes
from mimetic_jax.train.step import make_train_step
from mimetic_jax.train.tasks import task_module
from tests.training import program_of

SIZES = {"bf16": 2, "f32": 4}


def config_of(text, **model):
    config = default("text") if text else default()
    config.batch, config.steps = 32, 10
    config.optimizer.update(name="sgd", weight_decay=0.0)  # sends nothing, compiles fast
    config.accumulate = model.pop("accumulate", 1)
    config.model.update({"width": 32, "depth": 1, "heads": 2, "dtype": "bfloat16"} | model)
    if text:
        config.data.name, config.data.length, config.data.valid = "ptb_word", 12, 8
    return config


def collectives(text, loops):
    """Bytes of each kind of collective in a partitioned program, those in a loop for each turn."""
    sent = collections.Counter()
    pattern = r"= (\w+)\[([\d,]+)\]\S* (all-reduce|all-gather|all-to-all|collective-permute)\(.*"
    for found in re.finditer(pattern, text):
        kind, shape, name = found.group(1, 2, 3)
        if "{{0},{1}" not in found[0]:  # of groups of one device
            turns = loops if "while/body" in found[0] else 1
            sent[name] += turns * SIZES[kind] * math.prod(map(int, shape.split(",")))
    return sent


@pytest.fixture(autouse=True)
def compiled_anew(compiled_once):
    """What comes out of the cache of compilations goes through no pass."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


def sent(axes, folder, text=False, **model):
    config = config_of(text, **model)
    devices = jax.devices()[: math.prod(axes)]
    task = task_module(config.task)
    info = task.describe(config)
    info = dataclasses.replace(info, vocabulary=64) if text else data.describe("digits")
    program = program_of(config, info, meshes.make_mesh(*axes, devices=devices))
    rows = NamedSharding(program.mesh, meshes.BATCH)
    batch = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows), program.task.batch_shapes()
    )
    step = make_train_step(program.task.loss, program.optimizer, accumulate=config.accumulate)
    where = jax.tree.map(lambda x: x.sharding, program.shapes)
    lowered = jax.jit(step, out_shardings=(where, None)).lower(
        program.shapes, batch, jax.eval_shape(lambda: jax.random.key(0))
    )
    # A pass's dump, because the CPU has no bfloat16 sums and takes float32 for them later.
    lowered.compile(
        {
            "xla_dump_to": str(folder),
            "xla_dump_hlo_pass_re": "spmd-partitioning",
            "xla_backend_optimization_level": 0,
        }
    )
    (dump,) = folder.glob("*after_spmd-partitioning*")
    loops = config.accumulate if config.accumulate > 1 else config.model.depth
    return collectives(dump.read_text(), loops), work(program, config, axes, 1.0)


@pytest.mark.slow
def test_data(tmp_path):
    counted, expected = sent((8, 1, 1), tmp_path)
    assert counted == {"all-reduce": expected.reduced}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [{}, {"scan": True, "depth": 2}, {"scan": True, "remat": True, "depth": 2}]
)
def test_fsdp(tmp_path, model):
    counted, expected = sent((1, 8, 1), tmp_path, **model)
    assert counted["all-gather"] == expected.gathered
    assert counted["all-reduce"] == expected.scattered + expected.reduced


def test_data_and_fsdp_of_text(tmp_path):
    """Gradients are summed over fsdp, cut, and only then summed over data."""
    counted, expected = sent((2, 4, 1), tmp_path, text=True)
    assert counted["all-gather"] == expected.gathered
    assert counted["all-reduce"] == expected.scattered * 5 / 4 + expected.reduced


@pytest.mark.parametrize(
    "model", [{}, pytest.param({"scan": True, "remat": True, "depth": 2}, marks=pytest.mark.slow)]
)
def test_tensor(tmp_path, model):
    counted, expected = sent((1, 1, 2), tmp_path, **model)
    assert counted == {"all-reduce": expected.exchanged}


@pytest.mark.slow
def test_each_part_of_a_batch_is_summed(tmp_path):
    counted, expected = sent((4, 1, 1), tmp_path, accumulate=2)
    assert counted == {"all-reduce": expected.reduced}
