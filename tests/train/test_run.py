"""Whole runs: training, resuming, comparing."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.analysis.plan import bytes_per_device, describe
from mimetic_jax.schemes import Mimetic, SinCos
from mimetic_jax.train import program as programs
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.runs import Run
from tests.training import evaluations, killed, quiet, trained

DROPPED = {"model.dropout": 0.2, "model.drop_path": 0.1}


@pytest.mark.parametrize(
    ("after", "overrides"),
    [
        pytest.param(0, {}, marks=pytest.mark.slow),
        (9, {}),
        pytest.param(4, DROPPED, marks=pytest.mark.slow),
    ],
)
def test_resume_equals_no_stop(tiny, tmp_path, after, overrides):
    """Bit for bit, wherever it stops: dispatches of 2 steps, checkpoints every 4."""
    config, folders = tiny(**overrides), (tmp_path / "killed", tmp_path / "whole")
    whole = trained(config, folders[1])
    with killed(after):
        trained(config, folders[0])
    jax.tree.map(np.testing.assert_array_equal, trained(config, folders[0]), whole)
    ours, theirs = (Run.of(workdir, "run", 0).record() for workdir in folders)
    assert dataclasses.replace(ours, seconds=theirs.seconds) == theirs
    clocks = ("seconds", "examples_per_second")
    records, expected = (
        [
            {name: value for name, value in line.items() if name not in (*clocks, "record")}
            for line in Run.of(workdir, "run", 0).metrics.read()
        ]
        for workdir in folders
    )
    assert records == expected


@pytest.mark.slow
def test_dispatches_of_any_length_train_the_same(tiny, tmp_path, finished):
    """How many steps go to the device at once is no part of the result."""
    expected = quiet(tiny()).restored(Run.of(finished, "run", 0))
    found = trained(tiny(max_dispatch=50), tmp_path)
    jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)


def test_arms_share_data_and_what_their_schemes_leave(tiny):
    config = tiny()
    config.arms.default = {"scheme": ()}
    config.arms.mimetic = {"scheme": (SinCos(), Mimetic())}
    comparison = Comparison(config)
    assert comparison.arms["default"].program is comparison.arms["mimetic"].program
    default, mimetic = (
        comparison.arms[arm].program.initial_state(0, comparison.arms[arm].config.scheme).params
        for arm in ("default", "mimetic")
    )
    same = jax.tree.map(lambda a, b: bool((a == b).all()), default, mimetic)
    assert all(jax.tree.leaves(same["block_0"]["mlp"]))
    assert all(jax.tree.leaves(same["patch_embed"]))
    assert not same["pos_embed"]
    assert not same["block_0"]["attention"]["query"]["kernel"]


def test_comparison_continues_and_skips_what_is_finished(tiny, tmp_path):
    config = tiny()
    config.arms.default = {"scheme": ()}
    config.arms.mimetic = {"scheme": (SinCos(), Mimetic())}
    said = []
    table = str(quiet(config, said.append).train(tmp_path))
    assert "| default" in table
    assert "mimetic against default" in table
    assert sum("starts" in line for line in said) == 2
    config.seeds = (0, 1)
    said.clear()
    quiet(config, said.append).train(tmp_path)
    assert sum("finished before" in line for line in said) == 2
    assert sum("starts" in line for line in said) == 2


def test_another_config_is_refused_before_anything_is_written(tiny, workdir):
    before = (workdir / "config.json").read_text()
    for call in ("train", "table", "evaluate"):
        with pytest.raises(InputError, match="batch is 32 there and 16 here"):
            getattr(quiet(tiny(batch=16)), call)(workdir)
    assert (workdir / "config.json").read_text() == before


def test_evaluate_gives_the_recorded_accuracy(tiny, workdir, tmp_path):
    last = evaluations(Run.of(workdir, "run", 0))[-1]
    comparison = quiet(tiny())
    assert f"{100 * last['eval_accuracy']:5.2f} %" in comparison.evaluate(workdir)
    assert "no checkpoint" in comparison.evaluate(tmp_path / "elsewhere")


def test_a_loss_that_is_not_finite_stops_its_run_only(tiny, tmp_path):
    config = tiny()
    config.arms.bad = {"optimizer": {"learning_rate": 1e30, "clip": 0.0}}
    config.arms.default = {"scheme": ()}
    said: list[str] = []
    with pytest.raises(InputError, match="the loss of bad seed 0 is no longer finite"):
        quiet(config, said.append).train(tmp_path)
    assert any("bad seed 0: the loss is" in line and "at step" in line for line in said)
    # The other arm is trained all the same, and the table said.
    assert "| default" in said[-1]
    assert "| bad" not in said[-1]


@pytest.mark.slow
def test_a_last_step_that_makes_the_weights_infinite_is_no_result(tiny, tmp_path):
    """Every loss of the training is finite: it is that of the weights before the step."""
    config = tiny(steps=1, log_every=1, scheme=(), **{"eval.every": 0, "checkpoint_every": 0})
    config.optimizer.update(
        name="sgd", schedule="constant", warmup=0, weight_decay=0.0, learning_rate=3e38, clip=0.0
    )
    comparison = quiet(config, (said := []).append)
    for _ in range(2):
        with pytest.raises(InputError, match="the loss of run seed 0 is no longer finite"):
            comparison.train(tmp_path)
    assert any("after the last step, 1, the test loss is nan" in line for line in said)
    assert str(comparison.table(tmp_path)) == "no finished run yet"


@pytest.mark.slow
def test_evaluations_in_small_parts_of_an_epoch(tiny, tmp_path):
    config = tiny(steps=3, checkpoint_every=0, **{"eval.every": 0, "eval.every_epochs": 0.01})
    quiet(config).train(tmp_path)
    assert [record["step"] for record in evaluations(Run.of(tmp_path, "run", 0))] == [0, 1, 2, 3]


def test_plan_knows_the_arithmetic(tiny):
    comparison = quiet(tiny())
    program = comparison.arms["run"].program
    parameters = sum(leaf.size for leaf in jax.tree.leaves(program.shapes.params))
    # A forward and backward pass are about six FLOPs a parameter and token, and batch 32 of
    # 5 tokens; the small model's embeddings and softmax leave it within a factor of two.
    dense = 6 * parameters * 32 * 5
    assert 0.5 < program.flops_per_step / dense < 2
    sizes = bytes_per_device(program.shapes.opt_state), bytes_per_device(program.shapes.params)
    assert sizes[0] == pytest.approx(2 * sizes[1], rel=0.01)
    text = describe(comparison)
    assert f"{parameters:,} parameters" in text
    assert "block_0/attention/query/kernel" in text


@pytest.mark.slow
def test_the_log_has_the_share_of_the_peak_where_it_is_known(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "peak_flops", lambda kind: 1e12)
    comparison = Comparison(tiny(), say=(said := []).append)
    comparison.train(tmp_path)
    program = comparison.arms["run"].program
    *_, line = (x for x in Run.of(tmp_path, "run", 0).metrics.read() if "loss" in x)
    steps_per_second = line["examples_per_second"] / 32
    assert line["mfu"] == pytest.approx(steps_per_second * program.flops_per_step / 1e12)
    assert any("images/s  MFU " in text for text in said)


def poisoned(task, monkeypatch, bad):
    """Images that aren't numbers, at some steps."""
    prepare = task.prepare

    def prepared(key, step, examples):
        images, labels = prepare(key, step, examples)
        return jnp.where(bad(step), jnp.nan, images), labels

    monkeypatch.setattr(task, "prepare", prepared)


@pytest.mark.slow
def test_a_step_without_a_finite_gradient_stops_the_run(tiny, tmp_path, monkeypatch):
    comparison = Comparison(tiny(), say=(said := []).append)
    poisoned(comparison.arms["run"].program.task, monkeypatch, lambda step: step == 5)
    with pytest.raises(InputError, match="the loss of run seed 0 is no longer finite"):
        comparison.train(tmp_path)
    assert any("the loss is nan at step 5" in line for line in said)
    assert int(comparison.restored(Run.of(tmp_path, "run", 0)).step) == 4


def test_other_data_are_not_trained_on(tiny, workdir):
    """Whether config.json has the fingerprint of before, or only the checkpoint."""
    comparison = quiet(tiny())
    comparison.open()
    metrics = Run.of(workdir, "run", 0).metrics
    metrics.rewrite(line for line in metrics.read() if line["step"] <= 8)  # as if it was killed
    before = comparison.arms["run"].dataset.fingerprint
    comparison.arms["run"].dataset.fingerprint = "0123456789abcdef"
    for place in ("workdir", "a checkpoint in"):
        words = rf"{place} .* with other data \(fingerprint {before} there, 0123"
        with pytest.raises(InputError, match=words):
            comparison.train(workdir)
        path = workdir / "config.json"
        path.write_text(path.read_text().replace(before, "0123456789abcdef"))
