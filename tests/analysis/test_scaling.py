"""The arithmetic of docs/scaling.md, against hand counts, JAX's residuals and XLA's buffers."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import re

import jax
import jax.numpy as jnp
import pytest

from configs import imagenet_deit, wikitext103
from configs.default import default
from mimetic_jax import InputError
from mimetic_jax.analysis import scaling
from mimetic_jax.analysis.chips import H100, V5E, peak_flops
from mimetic_jax.analysis.plan import bytes_per_device, describe
from mimetic_jax.analysis.scaling import Work, block_bytes, estimate, work
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.tasks import task_module

WORK = Work(
    mesh=(16, 8, 2),
    batch=512,
    flops=5e16,
    half=True,
    gathered=2e9,
    scattered=1e9,
    reduced=1e6,
    exchanged=1e9,
    state=1e9,
    gradients=3e8,
    activations=4e9,
    buffers=2e8,
)


def images(batch=16, **model):
    config = default()
    config.batch, config.steps = batch, 10
    config.data.size, config.model.patch = 16, 2
    config.model.update({"width": 64, "depth": 2, "heads": 2} | model)
    return config


def text(batch=8, **model):
    config = default("text")
    config.data.name, config.data.length, config.data.valid = "ptb_word", 48, 24
    config.batch, config.steps = batch, 10
    config.model.update({"width": 64, "depth": 2, "heads": 2} | model)
    return config


def program_of(config):
    comparison = Comparison(config, lambda line: None, devices=jax.devices()[:1])
    return next(iter(comparison.arms.values())).program


def test_seconds_of_a_group():
    """By hand: a ring of 16 sends both ways, a line of 8 one way, a pod along both axes."""
    assert V5E.seconds(9e10, 16) == pytest.approx(15 / 16)
    assert V5E.seconds(9e10, 16, inner=16) == pytest.approx(15 / 16)
    assert V5E.seconds(9e10, 8) == pytest.approx(2 * 7 / 8)
    assert V5E.seconds(9e10, 256) == pytest.approx(255 / 256 / 2)
    assert V5E.seconds(9e10, 32, chips=32) == pytest.approx(31 / 32)  # 4 x 8: two lines
    assert V5E.seconds(9e10, 128, chips=128) == pytest.approx(127 / 128 / 1.5)  # a ring, a line
    assert H100.seconds(4.5e11, 8) == pytest.approx(7 / 8)
    assert H100.seconds(5e10, 8, inner=8) == pytest.approx(7 / 8)  # one of each node
    # 8 nodes of 8: every GPU's eighth goes to 7 other nodes; within a node is faster.
    assert H100.seconds(4e11, 64) == pytest.approx(7 / 8)
    assert H100.seconds(1.0, 1) == V5E.seconds(1.0, 1) == 0
    with pytest.raises(InputError, match="512 chips are more than the 256 of TPU v5e"):
        V5E.seconds(1.0, 256, inner=2)


def test_the_parts_of_a_step():
    """By hand, on 256 chips: 2 along tensor next to each other, then 8, then 16."""
    paper = estimate(WORK, V5E)
    assert paper.compute == pytest.approx(5e16 / 256 / (0.4 * 197e12))
    assert paper.exchange == pytest.approx(2 * 1e9 / 2 / 4.5e10)
    assert paper.gather == pytest.approx(2e9 * 7 / 8 / 4.5e10)
    whole = 2 * 1e6 * 127 / 128 / (4.5e10 + 9e10)  # every other chip of one axis, all of the other
    cut = 1e9 * 7 / 8 / 4.5e10 + 2 * (1e9 / 8) * 15 / 16 / 9e10
    assert paper.reduce == pytest.approx(cut + whole)
    assert paper.update == pytest.approx(2.3e9 / 819e9)
    assert paper.memory == pytest.approx(5.5e9)
    assert paper.communication == pytest.approx(paper.gather + paper.reduce + paper.exchange)
    exact = dataclasses.replace(WORK, half=False)
    assert estimate(exact, H100).compute == 2 * estimate(WORK, H100).compute


def test_where_it_breaks():
    """At these batches communication takes as long as computing, and memory is full."""

    def at(batch):
        scale = batch / WORK.batch
        names = ("flops", "exchanged", "activations")
        grown = {name: scale * getattr(WORK, name) for name in names}
        return estimate(dataclasses.replace(WORK, **grown), H100)

    paper = at(WORK.batch)
    least = at(paper.least_batch)
    assert least.communication == pytest.approx(least.compute)
    assert at(paper.largest_batch).memory == pytest.approx(H100.memory)
    never = dataclasses.replace(WORK, exchanged=1e12)
    assert estimate(never, H100).least_batch == math.inf


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA RTX A1000", None),
        ("Tesla V100-SXM2-16GB", 125e12),
        ("cpu", None),
    ],
)
def test_peak_of_a_device_kind(kind, peak):
    assert peak_flops(kind) == peak


def saved_bytes(config):
    """What JAX keeps of a forward pass for the backward pass: nothing is computed."""
    task = task_module(config.task)
    task, _ = task.build(config, task.describe(config), make_mesh(devices=jax.devices()[:1]))
    key = jax.eval_shape(lambda: jax.random.key(0))
    kept = jax.eval_shape(
        lambda p, batch, key: jax.vjp(lambda p: task.loss(p, {}, batch, key)[0], p)[1],
        jax.eval_shape(task.init, key)["params"],
        task.batch_shapes(),
        key,
    )
    arrays = [x for x in jax.tree.leaves(kept) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    return sum(x.size * x.dtype.itemsize for x in arrays)


@pytest.mark.parametrize(
    ("make", "model"),
    [
        (images, {}),
        (images, {"dtype": "bfloat16", "heads": 4}),
        (text, {"dtype": "bfloat16"}),
        (text, {"dropout": 0.1, "mlp_ratio": 2.0}),
        (text, {"remat": True}),
        (text, {"swiglu": True, "dtype": "bfloat16"}),
    ],
)
def test_a_block_saves_what_jax_saves(make, model):
    """Of an example and a layer: by the difference of two batches and two depths."""
    kept = [saved_bytes(make(batch, depth=depth, **model)) for batch in (1, 2) for depth in (1, 2)]
    measured = kept[3] - kept[2] - kept[1] + kept[0]
    config = make(**model)
    length, size = (65 if make is images else 48), (2 if "dtype" in model else 4)
    hidden, heads = int(64 * config.model.mlp_ratio), config.model.heads
    options = {"dropout": bool(config.model.dropout), "gated": "swiglu" in model}
    saved = block_bytes(length, 64, hidden, heads, size, **options)
    expected = length * (64 * size if config.model.remat else saved)
    # What JAX saves beside is masks and the constants that they select, which XLA makes anew.
    beside = 0 if make is images or config.model.remat else 5 * heads * length
    beside += 2 * 64 * size * bool(config.model.dropout)
    assert measured == expected + length * beside


def test_flash_attention_keeps_no_probabilities():
    """By hand: all else stays, and 4 heads' normalizers come in their place."""
    fast = [block_bytes(length, 64, 256, 4, 2, flash=True) for length in (10, 1000)]
    slow = block_bytes(10, 64, 256, 4, 2)
    assert fast[0] == fast[1] == slow - 4 * (10 * (2 + 4) + 8) + 4 * 4


def paper_and_xla(config):
    """Bytes beside arguments and gradients: on paper, and in XLA's buffers on the CPU."""
    program = program_of(config)
    task, params = program.task, program.shapes.params
    gradient = jax.jit(jax.grad(task.loss, has_aux=True))
    key = jax.eval_shape(lambda: jax.random.key(0))
    # The level is of the code's optimization, not of the buffers'. Nothing is allocated.
    compiled = gradient.lower(params, {}, task.batch_shapes(), key).compile(
        {"xla_backend_optimization_level": 0}
    )
    on_paper = work(program, config, (1, 1, 1), 1.0)
    returned = 4 * sum(leaf.size for leaf in jax.tree.leaves(params))
    expected = on_paper.activations + on_paper.buffers + on_paper.gradients - returned
    return expected, compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.slow
@pytest.mark.parametrize("remat", [False, True])
def test_memory_of_deit_is_what_xla_allocates(remat):
    """Its largest size, in a loop over layers; in float32, because the CPU has no other."""
    config = imagenet_deit.get_config("variant=B")
    config.batch = 16
    config.model.update({"dtype": "float32", "scan": True, "remat": remat})
    expected, allocated = paper_and_xla(config)
    assert expected == pytest.approx(allocated, rel=0.1)


@pytest.mark.slow
def test_memory_of_wikitext103_is_about_what_xla_allocates():
    expected, allocated = paper_and_xla(wikitext103.get_config())
    assert 0.7 < expected / allocated < 1.5


def test_state_is_the_programs():
    config = images()
    config.ema = 0.9
    program = program_of(config)
    state = program.shapes
    held = bytes_per_device((state.params, state.ema, state.opt_state))
    assert work(program, config, (1, 1, 1), 1.0).state == held
    assert work(program, config, (8, 1, 1), 1.0).state == held
    assert held / 8 < work(program, config, (1, 8, 1), 1.0).state < held / 7  # biases aren't cut


def test_plan_has_a_line_for_each_machine_of_what_one_chip_trains_for_hours(tiny, monkeypatch):
    comparison = Comparison(tiny())
    assert "\n  on " not in describe(comparison)
    monkeypatch.setattr(scaling, "ALONE", 0)
    lines = describe(comparison).splitlines()
    tpu, gpu = (line for line in lines if line.startswith("  on "))
    assert tpu.startswith("  on 32 of 256 TPU v5e (data 32; the batch can't be cut further): ")
    assert gpu.startswith("  on 32 of 64 H100 ")


def test_meshes_of_a_plan():
    config = images(1024)
    program = program_of(config)
    for fsdp, tensor, start in (
        (1, 1, "  on 256 TPU v5e (data 256): compute"),
        (2, 2, "  on 256 TPU v5e (data 64 x fsdp 2 x tensor 2): compute"),
        (3, 1, "  on TPU v5e: fsdp 3 x tensor 1 don't divide a power of two"),
    ):
        config.mesh.fsdp, config.mesh.tensor = fsdp, tensor
        assert scaling.lines(program, config, 1e18)[0].startswith(start)


@pytest.mark.slow
def test_the_documents_tables_are_what_its_code_prints(capsys):
    document = (pathlib.Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    exec(code, {})
    rows = [line for line in document.splitlines() if re.match(r"\| (TPU|H100)", line)]
    assert capsys.readouterr().out.splitlines() == rows
