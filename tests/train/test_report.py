from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import scipy.stats

from mimetic_jax.train.loop import Run
from mimetic_jax.train.report import ArmResult, summarize, table
from mimetic_jax.train.statistics import paired_difference
from mimetic_jax.train.tasks.task import ACCURACY, Score


def write_run(workdir, arm, seed, curve, finished=True, name="accuracy"):
    run = Run.of(workdir, arm, seed)
    run.directory.mkdir(parents=True)
    for step, value in curve:
        last = {"finished": True} if finished and step == curve[-1][0] else {}
        run.metrics.append(
            {"step": step, f"eval_{name}": value, "eval_count": 1, "seconds": 2.0, **last}
        )


@pytest.fixture
def workdir(tmp_path):
    for seed, (default, matched, mimetic) in enumerate([(60, 70, 80), (62, 71, 79), (61, 75, 84)]):
        write_run(tmp_path, "default", seed, [(0, 0.1), (10, 0.5), (20, default / 100)])
        write_run(tmp_path, "norm_matched", seed, [(0, 0.1), (10, 0.65), (20, matched / 100)])
        write_run(tmp_path, "mimetic", seed, [(0, 0.1), (10, 0.75), (20, mimetic / 100)])
    write_run(tmp_path, "slow", 0, [(0, 0.1), (10, 0.2), (20, 0.3)])
    write_run(tmp_path, "unfinished", 0, [(0, 0.1), (10, 0.9)], finished=False)
    return tmp_path


def summary(workdir, arms, seeds, score=ACCURACY):
    return summarize(workdir, [ArmResult.read(workdir, arm, seeds, score) for arm in arms])


ARMS = ("default", "norm_matched", "mimetic", "slow", "unfinished", "absent")


def test_a_folder_that_may_only_be_read_shows_its_table(workdir):
    (workdir / "summary.json").mkdir()
    shown = summary(workdir, ["default"], (0, 1, 2))
    assert "| default | 61.00 ± 1.00 | 3" in shown
    assert shown.endswith(f"not written into {workdir}: Is a directory")


def test_interval_is_students_t_over_pairs():
    difference = paired_difference([80.0, 79, 84], [60.0, 62, 61])
    low, high = scipy.stats.t.interval(
        0.95, 2, loc=difference.mean, scale=scipy.stats.sem([20.0, 17, 23])
    )
    assert (difference.low, difference.high) == pytest.approx((low, high))
    assert paired_difference([1.0], [0.5]).low is None


def test_summary(workdir):
    text = summary(workdir, ARMS, (0, 1, 2))
    rows = {row["arm"]: row for row in json.loads((workdir / "summary.json").read_text())}
    assert list(rows) == ["default", "norm_matched", "mimetic", "slow"]
    mimetic = rows["mimetic"]
    assert mimetic["accuracy_mean"] == pytest.approx(81.0)
    assert mimetic["accuracy_sd"] == pytest.approx(np.std([80, 79, 84], ddof=1))
    assert mimetic["n"] == 3
    assert mimetic["differences"]["norm_matched"]["mean"] == pytest.approx(9.0)
    assert mimetic["steps_to"]["default"] == [10, 10, 10]
    assert rows["slow"]["steps_to"]["default"] == [None]
    assert (workdir / "table.md").read_text() == f"{text}\n"
    with (workdir / "table.csv").open() as file:
        written = {row["arm"]: row for row in csv.DictReader(file)}
    assert list(written) == list(rows)
    for name in ("n", "mean", "sd"):
        key = name if name == "n" else f"accuracy_{name}"
        assert float(written["mimetic"][name]) == mimetic[key]
    for name, end in (("", "mean"), (" low", "low"), (" high", "high")):
        cell = written["mimetic"][f"difference to norm_matched{name}"]
        assert float(cell) == mimetic["differences"]["norm_matched"][end]
    assert written["default"]["difference to default"] == written["slow"]["sd"] == ""
    assert "| never " in text
    assert "mimetic against norm_matched: +9.00" in text
    assert "slow against default: -30.00 points, n=1: too few seeds" in text
    assert "mimetic against default: +20.00 [+12.55, +27.45] points, n=3: better" in text


def test_no_claim_where_the_interval_holds_zero(tmp_path):
    for seed, (default, arm) in enumerate([(60, 61), (60, 59), (60, 62)]):
        write_run(tmp_path, "default", seed, [(20, default / 100)])
        write_run(tmp_path, "arm", seed, [(20, arm / 100)])
    assert "no difference that these seeds show" in summary(tmp_path, ("default", "arm"), (0, 1, 2))


def test_nothing_finished(tmp_path):
    assert summary(tmp_path, ARMS, (0,)) == "no finished run yet"


def test_a_score_of_which_less_is_better(tmp_path):
    for seed, (default, arm) in enumerate([(90, 80), (92, 81), (91, 82)]):
        write_run(tmp_path, "default", seed, [(0, 999), (20, default)], name="perplexity")
        write_run(tmp_path, "arm", seed, [(0, 999), (10, 85), (20, arm)], name="perplexity")
    score = Score("perplexity", "perplexity", higher=False)
    text = summary(tmp_path, ("default", "arm"), (0, 1, 2), score)
    assert "| arm     | 81.00 ± 1.00 | 3" in text
    assert "arm against default: -10.00 [-12.48, -7.52], n=3: better" in text
    (_, row) = json.loads((tmp_path / "summary.json").read_text())
    assert row["perplexity_mean"] == pytest.approx(81.0)
    assert row["steps_to"]["default"] == [10, 10, 10]


def test_a_score_says_how_many_digits_it_is_shown_with():
    score = Score("bpc", "bits/char", higher=False, digits=3)
    results = []
    for arm, value in (("default", 1.2331), ("mimetic", 1.21)):
        reached = {0: value, 1: value + 0.01}
        curves = {seed: [(1, score)] for seed, score in reached.items()}
        results.append(ArmResult(arm, reached, curves, dict.fromkeys(reached, 1.0), score))
    text = table(results)
    assert "| 1.238 ± 0.007 |" in text
    assert "| -0.023 [-0.023, -0.023] |" in text
    assert "mimetic against default: -0.023 [-0.023, -0.023], n=2" in text
