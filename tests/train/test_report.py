import json
import math

import numpy as np
import pytest
import scipy.stats

from mimetic_jax.train import report
from mimetic_jax.train.record import ACCURACY, BITS, PERPLEXITY, Record
from mimetic_jax.train.report import ArmResult, Results, compared
from mimetic_jax.train.sensitivity import visible
from mimetic_jax.train.statistics import (
    Spreads,
    balanced_spreads,
    by_choice,
    paired_difference,
    pooled_spread,
    smallest_gain,
)
from tests.typical import typical


def runs(arm, curves, score="accuracy", **fields):
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
    )


@pytest.fixture
def results():
    ended = {"default": (60, 62, 61), "norm_matched_mimetic": (70, 71, 75), "mimetic": (80, 79, 84)}
    between = {"default": 50, "norm_matched_mimetic": 65, "mimetic": 75}
    return [
        *(
            runs(
                arm,
                [[(0, 10), (10, between[arm]), (20, value)] for value in values],
            )
            for arm, values in ended.items()
        ),
        runs("slow", [[(0, 10), (10, 20), (20, 30)]]),
    ]


def results_of(workdir, arms):
    return Results(workdir, {one.arm: one for one in compared(arms)})


def table(arms):
    return report.table(compared(arms))


def cells(arms):
    """By arm, from the first difference to the verdict."""
    head, *rows = report.grid(compared(arms))
    return {row[0]: [*row[3 : 1 + head.index("verdict")]] for row in rows}


def test_the_spread_of_a_table_is_that_of_an_analysis_of_variance():
    """Balanced: residuals around the means of arms and seeds, over (A − 1)(n − 1)."""
    scores = np.random.default_rng(0).normal(60, 1, (5, 4)) + np.arange(4)
    spread = pooled_spread([dict(enumerate(row)) for row in scores])
    means = scores.mean(1, keepdims=True) + scores.mean(0) - scores.mean()
    assert spread.freedom == 12
    assert spread.sd**2 == pytest.approx(((scores - means) ** 2).sum() / 12)
    pair = pooled_spread([dict(enumerate(row)) for row in scores[:2]])
    tested = scipy.stats.ttest_rel(scores[0], scores[1])
    interval = tested.confidence_interval()
    for found in (paired_difference(*scores[:2], pair), paired_difference(*scores[:2])):
        assert found.p == pytest.approx(tested.pvalue)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert pooled_spread([{0: 1.0}, {0: 2.0}]) is None
    assert paired_difference([1.0], [0.5]).low is None


def test_arms_may_have_other_seeds():
    """Those that only one arm has say nothing of the spread of a pair."""
    pair = [{0: 1.0, 1: 3.0}, {0: 2.0, 1: 2.0}]
    more = [{**pair[0], 7: 100.0}, {**pair[1], 8: -100.0}]
    found, expected = pooled_spread(more), pooled_spread(pair)
    assert (found.sd, found.freedom) == (pytest.approx(expected.sd), expected.freedom)


def named(scores):
    return {str(arm): dict(enumerate(row)) for arm, row in enumerate(scores)}


@pytest.mark.parametrize("arms", [3, 4, 8])
@pytest.mark.parametrize("wide", [(), (0,), (1,), (1, 3)])
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_intervals_hold_the_truth_in_95_of_100_cases(arms, seeds, wide):
    """Also if an arm, the default, or every other arm varies ten times as much as the rest."""
    scores = np.random.default_rng(0).normal(size=(5000, arms, seeds))
    scores[:, [arm for arm in wide if arm < arms]] *= 10
    held = []
    for arm in range(1, min(arms, 4)):
        order = [0, arm, *(other for other in range(1, arms) if other != arm)]
        deviations, freedom = balanced_spreads(scores[:, order])
        half = scipy.stats.t.ppf(0.975, freedom) * deviations * math.sqrt(2 / seeds)
        held.append(np.mean(abs((scores[:, 0] - scores[:, arm]).mean(-1)) <= half))
    assert np.mean(held) == pytest.approx(0.95, abs=0.0125)  # .01, and the error of the simulation
    assert min(held) >= 0.93


@pytest.mark.parametrize(("arms", "seeds"), [(3, 5), (4, 3), (6, 5)])
def test_a_table_has_the_spreads_of_the_simulation(arms, seeds):
    scores = np.random.default_rng(1).normal(size=(40, arms, seeds))
    scores[::2, 0] *= 5
    deviations, freedom = balanced_spreads(scores)
    for drawn, deviation, degrees in zip(scores, deviations, freedom, strict=True):
        found = Spreads(named(drawn)).of("0", "1")
        assert (found.sd, found.freedom) == (pytest.approx(deviation), degrees)
    assert len(set(freedom)) == (1 if arms < 4 else 2)


def test_an_arm_that_spreads_more_is_no_measure_of_the_others():
    """today/large: one arm's scores of a table vary twenty times as much as the others'."""
    close = [1.5, 1.502, 1.499], [1.512, 1.51, 1.513], [1.55, 1.553, 1.549]
    wide = [1.44, 1.52, 1.5]
    spreads = Spreads(named([*close, wide]))
    assert spreads.of("0", "1").sd < 0.003
    assert spreads.of("0", "3").sd > 0.02


def test_equal_scores_have_no_spread_and_no_verdict():
    arms = named([[60.0] * 3, [62.0] * 3, [61.0] * 3, [61.0] * 3])
    found = paired_difference([60.0] * 3, [62.0] * 3, Spreads(arms).of("0", "1"))
    assert (found.low, found.high, found.side(True)) == (-2.0, -2.0, 0)


def test_gains_over_sin_cos_positions_have_a_column():
    arms = {"default": 50, "sincos": 60, "mimetic": 65}
    every = [runs(arm, [[(9, x)], [(9, x + 1)], [(9, x)]]) for arm, x in arms.items()]
    lines = table(every).splitlines()
    column = [head.strip() for head in lines[0].split("|")].index("Δ sincos [95 % CI]")
    shown = {line.split("|")[1].strip(): line.split("|")[column].strip() for line in lines[2:5]}
    assert shown["default"] == shown["sincos"] == ""
    assert shown["mimetic"].startswith("+5.00")


def test_steps_to_the_default_only_where_it_is_not_past_its_best():
    arm = runs("arm", [[(0, 10), (10, 61), (20, 62)]] * 3)
    rising = runs("default", [[(0, 10), (10, 58), (20, x)] for x in (60, 61, 62)])
    falling = runs("default", [[(0, 10), (10, 66), (20, x)] for x in (60, 61, 62)])
    assert "steps to default's score" in table([rising, arm])
    assert "steps to default's score" not in table([falling, arm])
    less = runs("default", [[(0, 10), (10, 2), (20, 3)]] * 3, BITS.name)
    assert less.past_its_best()
    assert not rising.past_its_best()


@typical(("tests", "gain"), [(36, 19)], slow=[(360, 6), (3600, 1.9)])
def test_few_test_images_hide_gains(tests, gain):
    """Where a quarter of what is independent is left, found nine times of ten by the table."""
    said = visible(ACCURACY, None, 3, 4, tests)
    assert said.startswith(f"{tests:,} test images ")
    assert f"show gains from {gain} points" in said
    assert ("can't answer this" in said) == (gain > 10)
    assert gain < 10 or "; 530 would show 5 points" in said
    found = []
    for by_images in np.random.default_rng(0).normal(0, 100 * math.sqrt(0.125 / tests), 400):
        middle = 50 + (gain + by_images) / 2 * np.array([-1, 1])
        default, arm = (
            runs(name, [[(1, x)], [(1, x + 0.01)], [(1, x - 0.01)]], examples=tests)
            for name, x in zip(("default", "arm"), middle, strict=True)
        )
        found.append(compared([default, arm])[1].verdict == "better")
    assert np.mean(found) == pytest.approx(0.9, abs=0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_networks_agree_on_the_hard_images():
    """The images' part of a difference, by a table of two ways, is less than what is counted."""
    datasets = pytest.importorskip("sklearn.datasets")
    networks = pytest.importorskip("sklearn.neural_network")
    images, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    test, train = order[:360], order[360:]
    right = []
    for fields in ({"activation": "relu"}, {"activation": "tanh"}, {"learning_rate_init": 3e-3}):
        every = [
            networks.MLPClassifier((64,), max_iter=5, random_state=seed, **fields)
            for seed in range(4)
        ]
        right.append(
            [one.fit(images[train] / 16, labels[train]).predict(images[test] / 16) for one in every]
        )
    right = np.array(right) == labels[test]
    for ours, theirs in ((0, 1), (0, 2), (1, 2)):
        deltas = right[ours].astype(float) - right[theirs]
        seeds, count = deltas.shape
        by_image, by_seed = deltas.mean(0), deltas.mean(1, keepdims=True)
        left = deltas - by_image - by_seed + deltas.mean()
        noise = (left**2).sum() / ((seeds - 1) * (count - 1))
        found = (by_image.var(ddof=1) - noise / seeds) / count
        assert found < by_choice((right[ours].mean(), right[theirs].mean()), count) / 1.5


def test_test_images_that_all_seeds_share_are_part_of_the_interval():
    """300 photos of four classes, 28 of them to test on: with 2,000, it was +1.23."""
    ended = {"default": (18, 18, 17), "mimetic": (14, 15, 14)}
    for images, verdict in ((28, "undecided: few test images"), (28_000, "worse")):
        default, mimetic = (
            runs(arm, [[(9, 100 * right / 28)] for right in rights], examples=images)
            for arm, rights in ended.items()
        )
        found = compared([default, mimetic])[1]
        assert found.differences["default"].mean == pytest.approx(-11.9, abs=0.01)
        assert found.verdict == verdict
        assert found.differences["default"].few_examples == (images == 28)


def test_too_few_seeds_are_named_before_the_training():
    assert visible(ACCURACY, None, 2, 4, 1000) == "2 seeds can't show a gain: it takes 3"
    assert visible(ACCURACY, None, 3, 1, 1000) == ""
    assert "standard deviations" in visible(BITS, None, 3, 4, 0)


def test_summary(results, tmp_path):
    workdir = tmp_path
    found = results_of(workdir, results)
    found.write()
    text = str(found)
    rows = {row["arm"]: row for row in json.loads((workdir / "summary.json").read_text())}
    assert list(rows) == ["default", "norm_matched_mimetic", "mimetic", "slow"]
    mimetic = rows["mimetic"]
    assert mimetic["accuracy_mean"] == pytest.approx(81.0)
    assert mimetic["accuracy_sd"] == pytest.approx(np.std([80, 79, 84], ddof=1))
    assert mimetic["n"] == 3
    assert mimetic["differences"]["norm_matched_mimetic"]["mean"] == pytest.approx(9.0)
    assert mimetic["steps_to"]["default"] == [10, 10, 10]
    assert rows["slow"]["steps_to"]["default"] == [None]
    assert (workdir / "table.md").read_text() == f"{text}\n"
    assert "| never " in text
    assert cells(results) == {
        "default": ["", "", ""],
        "norm_matched_mimetic": ["+11.00 [+4.43, +17.57]", "", "better"],
        "mimetic": ["+20.00 [+12.55, +27.45]", "+9.00 [+6.52, +11.48]", "gain over noise"],
        "slow": ["-30.00 [-36.61, -23.39]", "", "undecided"],
    }
    assert "3 seeds of 4 arms show gains from" in text


def test_rows_are_flat_and_name_the_files(tmp_path):
    curve = [(0, 9.0), (10, 40.0)]
    arms = [runs("a", [curve, curve]), runs("b", [curve])]
    rows = results_of(tmp_path, arms).to_dicts()
    assert [(row["arm"], row["seed"], row["value"]) for row in rows] == [
        ("a", 0, 40.0),
        ("a", 1, 40.0),
        ("b", 0, 40.0),
    ]
    files = [f"{tmp_path}/runs/{run}/metrics.jsonl" for run in ("a/0", "a/1", "b/0")]
    assert [row["metrics"] for row in rows] == files
    values = [value for row in rows for value in row.values()]
    assert all(value is None or isinstance(value, str | int | float) for value in values)


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
    assert cells([default, arm])["arm"] == ["-10.00 [-12.48, -7.52]", "better"]
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


@typical(("n", "arms"), [(5, 2), (3, 4)], slow=[(3, 2), (5, 12)])
def test_the_smallest_gain_is_found_nine_times_of_ten(n, arms):
    gain, random = smallest_gain(0.5, n, arms), np.random.default_rng(0)
    found = []
    for drawn in random.normal(0, 0.5, (300, arms, n)):
        drawn[0] += gain
        found.append(paired_difference(drawn[0], drawn[1], Spreads(named(drawn)).of("0", "1")))
    shown = [one.mean > 0 and one.p < 0.05 for one in found]
    assert np.mean(shown) == pytest.approx(0.9, abs=0.05)
