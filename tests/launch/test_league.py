"""The league: arms choose their row in trials, then are compared there, all through the queue."""

import doctest
import itertools

import numpy as np
import pytest
import scipy.stats

from launch import docs, league, reproduce, runs
from launch import rows as registry
from launch.runs import Line, Results
from mimetic_jax.train.statistics import Difference, holm
from papers import TABLES

TASK = "league/digits"
ARMS = ("default", "mimetic", "norm_matched_mimetic", "gpt2")
FIRST = TABLES[TASK].first
RATES = [row.fields["optimizer.learning_rate"] for row in TABLES[TASK].rows]
BEST = {
    "default": FIRST[1],
    "mimetic": FIRST[-1],
    "norm_matched_mimetic": FIRST[0] - 2,
    "gpt2": len(TABLES[TASK].rows),
}
TRIED = {
    "default": {*FIRST},
    "mimetic": {*FIRST, FIRST[-1] + 1},
    "norm_matched_mimetic": {*FIRST, *range(FIRST[0] - 3, FIRST[0])},
    "gpt2": {*range(FIRST[0], len(TABLES[TASK].rows) + 1)},
}
"""Until the best is between two others, or the table ends."""
DRAWS = np.random.default_rng(0)


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run the command; each training is replaced by a line whose score depends on its job alone."""
    trained = []

    def train(queue, jobs, seconds=0.0):
        for job in jobs:
            trained.append(job)
            row = 1 + RATES.index(job.row.fields["optimizer.learning_rate"])
            gain = {"mimetic": 5.0, "gpt2": 0.1}.get(job.arm, 0.0)
            value = (
                60 + gain - abs(row - BEST[job.arm]) + np.sin(7 * job.seed + sum(map(ord, job.arm)))
            )
            about = {"config": job.row.key, "small": False, "score": "accuracy", "seconds": 1}
            about |= vars(queue._made[job.row.comparison][job.arm])
            curve = [(0, 10.0), (50, 5 + value / 2), (100, value)]
            queue.results.append(
                job.row, Line(arm=job.arm, seed=job.seed, value=value, curve=curve, **about)
            )
        return {}

    monkeypatch.setattr(runs.Queue, "train", train)

    def run(*more):
        trained.clear()
        command = [TASK, f"--results={tmp_path}/results", f"--workdir={tmp_path}/work", *more]
        assert reproduce.main([*command, f"--arms={','.join(ARMS)}"]) == 0
        return list(trained), Results(tmp_path / "results")

    return run


def test_doctests():
    assert doctest.testmod(league).failed == 0


def test_arms_choose_in_trials_and_are_compared_there(call, capsys):
    jobs, results = call()
    number = sum(map(len, TRIED.values()))
    trials, compared = jobs[:number], jobs[number:]
    assert {job.seed for job in trials} == set(TABLES[TASK].trials)
    tried = {
        (job.arm, 1 + RATES.index(job.row.fields["optimizer.learning_rate"])) for job in trials
    }
    assert tried == {(arm, number) for arm, numbers in TRIED.items() for number in numbers}
    assert {job.row.fields["data.held_out"] for job in trials} == {0.2}
    seeds = TABLES[TASK].seeds
    assert not set(seeds) & set(TABLES[TASK].trials)
    rows = registry.rows(TASK)
    expected = {(rows[BEST[arm] - 1].comparison, arm, seed) for arm in ARMS for seed in seeds}
    assert {(job.row.comparison, job.arm, job.seed) for job in compared} == expected
    assert {job.arm for job in compared[: len(seeds)]} == {"default"}  # its spread is known first
    assert call()[0] == []  # everything has its line
    shown = capsys.readouterr().out
    assert shown.index("nine times of ten") < shown.index("| `mimetic`")

    standings = league.standings(TASK, results)
    found = {one.result.arm: one.result for one in standings}
    values = {arm: [found[arm].reached[seed] for seed in seeds] for arm in ARMS}
    p = {arm: pvalue(values, arm) for arm in ("mimetic", "gpt2")}
    small, large = sorted(p, key=p.get)
    assert found[small].differences["default"].p == pytest.approx(min(1, 2 * p[small]))
    assert found[large].differences["default"].p == pytest.approx(max(2 * p[small], p[large]))
    assert found["mimetic"].differences["default"].mean == pytest.approx(
        np.mean(np.subtract(values["mimetic"], values["default"]))
    )
    assert found["mimetic"].differences["noise"].n == len(seeds)
    assert "noise" not in found["gpt2"].differences
    assert {one.result.arm for one in standings if one.edge} == {"gpt2"}
    assert "gain over noise" in league.task_table(TASK, results)
    cell = f"**{found['mimetic'].differences['default'].mean:+.2f}**"
    grid = league.grid(docs.GRIDS["league"], results)
    assert cell in grid
    marked = [line for line in grid.splitlines() if "†" in line]
    assert [line.split("`")[1] for line in marked] == ["gpt2"]


def pvalue(values, arm):
    """Student's t with the residual of all arms around arms and seeds, as of a two-way ANOVA."""
    scores = np.array([*values.values()])
    centered = scores - scores.mean(1, keepdims=True) - scores.mean(0) + scores.mean()
    freedom = np.prod(np.subtract(scores.shape, 1))
    error = np.sqrt((centered**2).sum() / freedom * 2 / scores.shape[1])
    t = np.mean(np.subtract(values[arm], values["default"])) / error
    return 2 * scipy.stats.t.sf(abs(t), freedom)


def test_seeds_that_the_table_does_not_name_are_not_compared(call):
    """A table that asks again with other seeds shares the lines of the first."""
    _, results = call()
    before = league.task_table(TASK, results)
    _, results = call("--seeds=1000-1002")
    assert league.task_table(TASK, results) == before


def test_an_arm_that_misses_a_trial_is_not_compared(call):
    jobs, results = call("--seeds=0")
    assert {job.seed for job in jobs} == {0, *TABLES[TASK].trials}
    lines = (results.folder / "league.jsonl").read_text().splitlines()
    without = [line for line in lines if '"seed": 100' not in line or "gpt2" not in line]
    (results.folder / "league.jsonl").write_text("\n".join(without) + "\n")
    again = Results(results.folder)
    chosen = league.chosen_rows(TASK, again)
    assert {arm for row in chosen for arm in row.arms} == set(ARMS) - {"gpt2"}


def test_one_row_is_no_choice(call):
    with pytest.raises(SystemExit) as error:
        call("--row=1")
    assert error.value.code == 2


def test_every_control_is_that_of_an_entrant():
    for name, table in TABLES.items():
        if table.trials:
            arms = set(table.rows[0].arms)
            controls = {arm for arm in arms if arm.startswith("norm_matched_")}
            assert {arm.removeprefix("norm_matched_") for arm in controls} <= arms, name


def test_holm_against_its_definition():
    """Reject the smallest p against α/m, the next against α/(m − 1), … until one isn't rejected."""
    for count in (1, 3, 12):
        ps = DRAWS.beta(0.3, 3, count)
        found = [one.p for one in holm([Difference(1, 0.5, 1.5, 5, p) for p in ps])]
        for level in (0.01, 0.05, 0.3):
            smaller = np.sort(ps) <= level / np.arange(count, 0, -1)
            rejected = set(np.argsort(ps)[: len(list(itertools.takewhile(bool, smaller)))])
            assert {at for at, p in enumerate(found) if p <= level} == rejected
    assert holm([None, Difference(1, None, None, 1)]) == [None, Difference(1, None, None, 1)]
