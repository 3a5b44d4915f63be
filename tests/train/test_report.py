import doctest
import json

import numpy as np
import pytest
import scipy.stats

from mimetic_jax.train import statistics
from mimetic_jax.train.record import BITS, PERPLEXITY, Record
from mimetic_jax.train.report import ArmResult, Results, table
from mimetic_jax.train.statistics import paired_difference, smallest_gain


def runs(arm, curves, score="accuracy", control="", **fields):
    """The runs of an arm by seed, of the curve of each."""
    return ArmResult(
        arm,
        {
            seed: Record(
                arm=arm,
                seed=seed,
                score=score,
                value=curve[-1][1],
                curve=curve,
                seconds=2.0,
                **fields,
            )
            for seed, curve in enumerate(curves)
        },
        control=control,
    )


@pytest.fixture
def results():
    ended = {"default": (60, 62, 61), "norm_matched": (70, 71, 75), "mimetic": (80, 79, 84)}
    between = {"default": 50, "norm_matched": 65, "mimetic": 75}
    control = {"mimetic": "norm_matched"}
    return [
        *(
            runs(
                arm,
                [[(0, 10), (10, between[arm]), (20, value)] for value in values],
                control=control.get(arm, ""),
            )
            for arm, values in ended.items()
        ),
        runs("slow", [[(0, 10), (10, 20), (20, 30)]]),
    ]


def results_of(workdir, arms):
    found = {arm.arm: arm for arm in arms}
    return Results(workdir, found)


def test_interval_is_students_t_over_pairs():
    difference = paired_difference([80.0, 79, 84], [60.0, 62, 61])
    low, high = scipy.stats.t.interval(
        0.95, 2, loc=difference.mean, scale=scipy.stats.sem([20.0, 17, 23])
    )
    assert (difference.low, difference.high) == pytest.approx((low, high))
    assert paired_difference([1.0], [0.5]).low is None


def test_summary(results, tmp_path):
    workdir = tmp_path
    found = results_of(workdir, results)
    found.write()
    text = str(found)
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
    assert "| never " in text
    assert "mimetic against norm_matched: +9.00" in text
    assert "slow against default: -30.00 points, n=1: too few seeds" in text
    assert "mimetic against default: +20.00 [+12.55, +27.45] points, n=3: better" in text


def test_rows_are_flat_and_name_the_files(tmp_path):
    curve = [(0, 9.0), (10, 40.0)]
    arms = [runs("a", [curve, curve], "recall", elsewhere={"x2": 5.0}), runs("b", [curve])]
    rows = results_of(tmp_path, arms).to_dicts()
    assert [(row["arm"], row["seed"], row["value"]) for row in rows] == [
        ("a", 0, 40.0),
        ("a", 1, 40.0),
        ("b", 0, 40.0),
    ]
    assert rows[0]["recall_x2"] == 5.0
    files = [f"{tmp_path}/runs/{run}/metrics.jsonl" for run in ("a/0", "a/1", "b/0")]
    assert [row["metrics"] for row in rows] == files
    values = [value for row in rows for value in row.values()]
    assert all(value is None or isinstance(value, str | int | float) for value in values)


def test_no_claim_where_the_interval_holds_zero():
    default, arm = (
        runs("default", [[(20, 60)]] * 3),
        runs("arm", [[(20, x)] for x in (61, 59, 62)]),
    )
    assert "no difference shown" in table([default, arm])


def test_nothing_finished(tmp_path):
    found = results_of(tmp_path, [])
    found.write()
    assert (str(found), found.to_dicts()) == ("no finished run yet", [])
    assert not list(tmp_path.iterdir())


def test_a_score_of_which_less_is_better():
    score = PERPLEXITY.name
    default = runs("default", [[(0, 999), (20, x)] for x in (90, 92, 91)], score)
    arm = runs("arm", [[(0, 999), (10, 85), (20, x)] for x in (80, 81, 82)], score)
    text = table([default, arm])
    assert "| arm     | 81.00 ± 1.00    | 3" in text
    assert "arm against default: -10.00 [-12.48, -7.52], n=3: better" in text
    assert arm.steps_to(default) == [10, 10, 10]


def test_a_score_says_how_many_digits_it_is_shown_with():
    text = table(
        [
            runs(arm, [[(1, x)], [(1, x + 0.01)]], BITS.name)
            for arm, x in (("default", 1.2331), ("mimetic", 1.21))
        ]
    )
    assert "| 1.238 ± 0.007  |" in text
    assert "| -0.023 [-0.023, -0.023] |" in text
    assert "mimetic against default: -0.023 [-0.023, -0.023], n=2" in text


def test_doctests():
    assert doctest.testmod(statistics).failed == 0


@pytest.mark.parametrize(("n", "of"), [(2, 1), (5, 1), (5, 8)])
def test_the_smallest_gain_is_found_nine_times_of_ten(n, of):
    gain, random = smallest_gain(0.5, n, of), np.random.default_rng(0)
    theirs, ours = random.normal(0, 0.5, (1500, n)), random.normal(gain, 0.5, (1500, n))
    pairs = [paired_difference(*pair) for pair in zip(ours, theirs, strict=True)]
    found = [one.mean > 0 and one.p < 0.05 / of for one in pairs]
    assert np.mean(found) == pytest.approx(0.9, abs=0.03)


def test_it_grows_with_spread_and_arms_and_falls_with_seeds():
    assert smallest_gain(0.2, 5) == pytest.approx(2 * smallest_gain(0.1, 5))
    assert smallest_gain(0.1, 8) < smallest_gain(0.1, 5) < smallest_gain(0.1, 5, of=12)
