"""Whole runs: training, resuming, comparing."""

import dataclasses
import json
import re
import shutil

import jax
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.analysis import attention, curves, products
from mimetic_jax.analysis.plan import bytes_per_device, describe
from mimetic_jax.schemes import Mimetic, SinCos
from mimetic_jax.train import program as programs
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.report import table
from mimetic_jax.train.store.runs import Run
from tests.training import evaluations, killed, quiet, trained, unclocked
from tests.typical import typical

DROPPED = {"model.dropout": 0.2, "model.drop_path": 0.1}


@typical(
    ("after", "overrides"),
    [(9, {"checkpoint_every": 3})],  # between two lines of the log
    slow=[(9, {}), (0, {}), (4, DROPPED)],
)
def test_resume_equals_no_stop(tiny, tmp_path, after, overrides):
    """Bit for bit, wherever it stops: dispatches of 2 steps, checkpoints every 4 or 3."""
    config, folders = tiny(**overrides), (tmp_path / "killed", tmp_path / "whole")
    whole = trained(config, folders[1])
    with killed(after):
        trained(config, folders[0])
    jax.tree.map(np.testing.assert_array_equal, trained(config, folders[0]), whole)
    ours, theirs = (Run.of(workdir, "run", 0).record() for workdir in folders)
    assert dataclasses.replace(ours, seconds=theirs.seconds) == theirs
    lines, expected = (unclocked(Run.of(workdir, "run", 0)) for workdir in folders)
    assert lines == expected


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


def test_another_config_is_refused_before_anything_is_written(tiny, workdir):
    before = (workdir / "config.json").read_text()
    for call in ("train", "table", "evaluate"):
        with pytest.raises(InputError, match="batch is 32 there and 16 here"):
            getattr(quiet(tiny(batch=16)), call)(workdir)
    assert (workdir / "config.json").read_text() == before


def test_evaluate_gives_the_recorded_accuracy(tiny, workdir, tmp_path):
    last = evaluations(Run.of(workdir, "run", 0))[-1]
    comparison = quiet(tiny())
    assert f"{100 * last['eval_accuracy']:5.2f}%" in comparison.evaluate(workdir)
    assert "run seed 1: no checkpoint" in quiet(tiny(seeds=(0, 1))).evaluate(workdir)
    for call in (comparison.evaluate, comparison.table):
        with pytest.raises(InputError, match=r"nothing was trained in .*elsewhere"):
            call(tmp_path / "elsewhere")


def test_a_loss_that_is_not_finite_stops_its_run_only(tiny, tmp_path):
    config = tiny()
    config.arms.bad = {"optimizer": {"learning_rate": 1e30, "clip": 0.0}}
    config.arms.default = {"scheme": ()}
    said: list[str] = []
    with pytest.raises(InputError, match="the loss of bad seed 0 is no longer finite"):
        quiet(config, said.append).train(tmp_path)
    told = r"  bad seed 0: the loss is \S+ at step \d+; checkpoints up to step \d+ are kept: lower"
    assert any(re.match(told, line) for line in said)
    # The other arm is trained all the same, and the table said.
    assert "| default" in said[-1]
    assert "| bad" not in said[-1]


@pytest.mark.slow
def test_a_last_step_that_makes_the_weights_infinite_is_no_result(tiny, tmp_path):
    """Every loss of the training is finite: it is that of the weights before the step."""
    config = tiny(steps=1, log_every=1, scheme=(), **{"eval.every": 0, "checkpoint_every": 0})
    config.optimizer.update(name="sgd", schedule="constant", warmup=0, weight_decay=0.0, clip=0.0)
    config.optimizer.learning_rate = 3e38
    comparison = quiet(config, (said := []).append)
    for _ in range(2):
        with pytest.raises(InputError, match="the loss of run seed 0 is no longer finite"):
            comparison.train(tmp_path)
    assert any("after the last step, 1, the test loss is nan" in line for line in said)
    assert str(comparison.table(tmp_path)) == "no finished run yet"


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


def test_other_data_are_neither_tested_nor_trained_on(tiny, workdir):
    """Whether config.json has the fingerprint of before, or only the checkpoint."""
    comparison = quiet(tiny())
    comparison.arms.load_data()
    metrics = Run.of(workdir, "run", 0).metrics
    metrics.rewrite(line for line in metrics.read() if line["step"] <= 8)  # as if it was killed
    before = comparison.arms["run"].source.fingerprint
    comparison.arms["run"].source.fingerprint = "0123456789abcdef"
    for call in (comparison.evaluate, lambda workdir: attention.analyze(comparison, workdir)):
        with pytest.raises(InputError, match=r"with other data \(fingerprint .* there, 0123"):
            call(workdir)
    assert "products drawn" in products.analyze(comparison, workdir)  # of weights alone
    for place in ("workdir", "a checkpoint in"):
        words = rf"{place} .* with other data \(fingerprint {before} there, 0123"
        with pytest.raises(InputError, match=words):
            comparison.train(workdir)
        path = workdir / "config.json"
        path.write_text(path.read_text().replace(before, "0123456789abcdef"))


@pytest.mark.slow
def test_other_weights_to_start_from_are_not_drawn(tiny, finished, tmp_path):
    teacher = shutil.copytree(finished, tmp_path / "teacher")
    config = tiny(init_from=f"{teacher}/runs/run/0", scheme=())
    quiet(config).train(tmp_path / "student")
    shutil.rmtree(teacher)
    quiet(tiny(**{"optimizer.learning_rate": 1e-2})).train(teacher)
    with pytest.raises(InputError, match=r"student was trained with other .*/runs/run/0 \(finger"):
        products.analyze(quiet(config), tmp_path / "student")


def test_everything_in_a_workdir_is_in_its_table(tiny, tmp_path):
    """Also seeds and arms of earlier commands, and the run of a config without arms."""
    quiet(tiny(), (said := []).append).train(tmp_path)
    config = tiny(seeds=(1,))
    config.arms.default = {"scheme": ()}
    assert set(quiet(config, said.append).train(tmp_path).arms) == {"run", "default"}
    for last in (tiny(seeds=(1,)), config):
        found = quiet(last, said.append).train(tmp_path)
    counts = (sum(line.endswith(words) for line in said) for words in (": starts", "before"))
    assert tuple(counts) == (3, 1)
    seeds = {arm: list(one.runs) for arm, one in found.arms.items()}
    assert seeds == {"run": [0, 1], "default": [1]}
    _, results = curves.read(tmp_path)
    assert (tmp_path / "table.md").read_text() == f"{table(results)}\n"
    rows = json.loads((tmp_path / "summary.json").read_text())
    assert [(row["arm"], row["n"]) for row in rows] == [("run", 2), ("default", 1)]


@pytest.mark.slow
def test_a_group_is_read_whichever_arm_is_left_out(tiny, tmp_path):
    config = tiny(together=2, scheme=())
    config.arms = {"first": {}, "second": {"scheme": (Mimetic(),)}}
    quiet(config).train(tmp_path)
    whole = quiet(config).evaluate(tmp_path).splitlines()
    del config.arms["first"]
    assert quiet(config).evaluate(tmp_path) == whole[1]
    assert "products drawn" in products.analyze(quiet(config), tmp_path)


def test_a_part_of_the_data_is_as_large_as_expected(tiny):
    """Parts are rounded in each class; another number of examples is reported."""
    said = []
    comparison = quiet(tiny(**{"data.subset": 0.1}), said.append)
    comparison.arms.load_data()
    assert said == []
    assert comparison.arms["run"].program.feed.steps_per_epoch == 143 // 32


@pytest.mark.slow
def test_the_hook_gets_every_line_of_every_run(tiny, tmp_path):
    config = tiny()
    config.seeds, config.together = (0, 1), 2
    seen = {}

    def keep(run, line):
        seen.setdefault(run, []).append(dict(line))

    quiet(config, on_metrics=keep).train(tmp_path)
    assert list(seen) == [Run.of(tmp_path, "run", seed) for seed in (0, 1)]
    for run, lines in seen.items():
        assert lines == run.metrics.read()
        assert lines[-1]["step"] == config.steps
