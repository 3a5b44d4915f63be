import json

import numpy as np
import pytest

from mimetic_jax.train import report
from mimetic_jax.train.record import BITS, PERPLEXITY, Record
from mimetic_jax.train.report import Results
from mimetic_jax.train.statistics import Difference
from mimetic_jax.train.verdicts import ArmResult, compared, conclusions


def runs(arm, curves, score="accuracy", **fields):
    """The runs of an arm by seed, of the curve of each."""
    about = {"arm": arm, "score": score, "seconds": 2.0, **fields}
    found = {
        seed: Record(seed=seed, value=curve[-1][1], curve=curve, **about)
        for seed, curve in enumerate(curves)
    }
    return ArmResult(arm, found)


@pytest.fixture
def results():
    ended = {"default": (60, 62, 61), "norm_matched_mimetic": (70, 71, 75), "mimetic": (80, 79, 84)}
    before = {"default": 50, "norm_matched_mimetic": 65, "mimetic": 75}
    start = [(step, 10) for step in range(4)]
    return [
        *(
            runs(arm, [[*start, (10, before[arm]), (20, value)] for value in values])
            for arm, values in ended.items()
        ),
        runs("slow", [[*start, (10, 20), (20, 30)]]),
    ]


def results_of(workdir, arms):
    return Results(workdir, {one.arm: one for one in compared(arms)})


def table(arms):
    return report.table(compared(arms))


def cells(arms):
    """By arm, from the first difference to the verdict."""
    head, *rows = report.grid(compared(arms))
    return {row[0]: [*row[3 : 1 + head.index("verdict")]] for row in rows}


def test_gains_over_sin_cos_positions_have_a_column():
    arms = {"default": 50, "sincos": 60, "mimetic": 65}
    every = [runs(arm, [[(9, x)], [(9, x + 1)], [(9, x)]]) for arm, x in arms.items()]
    lines = table(every).splitlines()
    column = [head.strip() for head in lines[0].split("|")].index("Δ sincos [95% CI]")
    shown = {line.split("|")[1].strip(): line.split("|")[column].strip() for line in lines[2:5]}
    assert shown["default"] == shown["sincos"] == ""
    assert shown["mimetic"].startswith("+5.00")


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ({"default": (1, 7), "noise": (-2, 3)}, "improvement; not over controls"),
        ({"default": (1, 7), "noise": (1, 5)}, "improvement over norm-matched"),
        ({"default": (1, 7), "noise": (-5, -1)}, "worse than norm-matched"),
        ({"default": (1, 7), "permuted": (1, 5)}, "improvement by alignment"),
        ({"default": (1, 7), "permuted": (-2, 3)}, "improvement; not over controls"),
        (
            {"default": (1, 7), "noise": (1, 5), "permuted": (-2, 3)},
            "improvement over norm-matched",
        ),
        (
            {"default": (1, 7), "noise": (-2, 3), "permuted": (1, 5)},
            "improvement; not over controls",
        ),
        ({"sincos": (1, 7)}, "better"),
        ({"default": (-7, -1), "noise": (1, 5)}, "worse"),
        ({"default": (-1, 9), "noise": (1, 5)}, "inconclusive"),
    ],
)
def test_a_line_says_what_was_shown(differences, verdict):
    """By the permuted control, too, where it was trained; no line for controls."""
    run = Record(arm="mimetic", seed=0, score="accuracy", value=50.0)
    gained = {name: Difference(sum(ends) / 2, *ends, 3) for name, ends in differences.items()}
    arms = [
        ArmResult("default", {0: run}, rate=1e-3),
        ArmResult("norm_matched_mimetic", {0: run}, rate=1e-3, differences=gained),
        ArmResult("mimetic", {0: run}, rate=1e-3, differences=gained),
    ]
    line, rate = conclusions(arms)
    name, gain = next(iter(gained.items()))
    assert line.startswith(f"mimetic: {verdict} ({gain:.2f} over {name}")
    assert rate == "All arms have the learning rate 0.001; each may do better at another."


def test_test_images_that_all_seeds_share_are_part_of_the_interval():
    """300 photos of four classes, 28 of them to test on: with 2,000, it was +1.23."""
    ended = {"default": (18, 18, 17), "mimetic": (14, 15, 14)}
    for images, verdict in ((28, "inconclusive: few test images"), (28_000, "worse")):
        default, mimetic = (
            runs(arm, [[(9, 100 * right / 28)] for right in rights], examples=images)
            for arm, rights in ended.items()
        )
        found = compared([default, mimetic])[1]
        assert found.differences["default"].mean == pytest.approx(-11.9, abs=0.01)
        assert found.verdict == verdict
        assert found.differences["default"].few_examples == (images == 28)


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
    assert (workdir / "table.md").read_text() == f"{text}\n"
    assert cells(results) == {
        "default": ["", "", ""],
        "norm_matched_mimetic": ["+11.00 [+7.18, +14.82]", "", "better"],
        "mimetic": [
            "+20.00 [+16.18, +23.82]",
            "+9.00 [+5.18, +12.82]",
            "improvement over norm-matched",
        ],
        "slow": ["-30.00 [-36.61, -23.39]", "", "inconclusive"],
    }
    rule = "Intervals by the spread of all arms, as Brown–Forsythe p ≥ 0.5"
    assert f"\n\n{rule} (0.804, 4 degrees of freedom).\n\n3 seeds of 4 arms detect gains" in text


def test_rows_are_flat_and_name_the_files(tmp_path):
    curve = [(0, 9.0), (10, 40.0)]
    arms = [runs("a", [curve, curve]), runs("b", [curve])]
    rows = results_of(tmp_path, arms).to_dicts()
    found = [(row["arm"], row["seed"], row["value"]) for row in rows]
    assert found == [("a", 0, 40.0), ("a", 1, 40.0), ("b", 0, 40.0)]
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


def test_a_score_says_how_many_digits_it_is_shown_with():
    text = table(
        [
            runs(arm, [[(1, x)], [(1, x + 0.01)], [(1, x + 0.005)]], BITS.name)
            for arm, x in (("default", 1.2331), ("mimetic", 1.21))
        ]
    )
    assert "| 1.238 ± 0.005  |" in text
    assert "| -0.023 [-0.023, -0.023] |" in text
