"""The pages that are made of results: each of their scores is that of lines."""

import functools
import itertools
import json
import pathlib
import re
from collections import defaultdict

import numpy as np
import pytest
import scipy.stats

from launch import docs, findings, registry
from launch.results import Results
from mimetic_jax.errors import InputError
from mimetic_jax.train.record import Record
from mimetic_jax.train.report import ArmResult
from papers import TABLES

ROOT = pathlib.Path(__file__).parents[2]

SCORE = re.compile(
    r"(?<![-+\d.])(\d+\.\d+|\d+(?= ± \d+ ))(?: ± (\d+(?:\.\d+)?))? \((?:n = )?(\d+)(?: of \d+)?\)"
)
# † marks an interval over the test images of one seed, which is no t interval.
SIGNED = r"[+-]\d+(?:\.\d+)?"
DIFFERENCE = re.compile(rf"({SIGNED}) \[({SIGNED}), ({SIGNED})\](†?)")
UNSIGNED = r"\d+(?:\.\d+)?"
# Of a mean: those of probabilities are of a bootstrap.
INTERVAL = re.compile(rf"(?<![-+\d.])(?<!better\) )({UNSIGNED}) \[(-?{UNSIGNED}), (-?{UNSIGNED})\]")
DIGITS = (0, 2, 3)
GOAL = {"recall": 95.0}
TRIALS = {seed for table in TABLES.values() for seed in table.trials}
COMPARED = re.compile(r"league:task=\w+|[^: ]+")
"""Of a line's config: arms of it are compared, those of the league within a task alone."""


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def lines():
    """Scores by comparison and step, arm, digest and seed, read without our code."""
    found = defaultdict(dict)
    for path in sorted(ROOT.glob("results/*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            if "digest" not in line:
                continue
            values = line.get("values") or {line["seed"]: line["value"]}
            pairs = values.items() if isinstance(values, dict) else enumerate(values)
            if line.get("seed") in TRIALS:
                continue
            scores = [("the last", seed, value) for seed, value in pairs if value is not None]
            curve = line.get("curve", [])
            scores += [(step, line["seed"], value) for step, value in curve]
            scores += [(at, line["seed"], value) for at, value in line.get("elsewhere", {}).items()]
            reached = [step for step, value in curve if value >= GOAL.get(line["score"], np.inf)]
            scores += [("goal", line["seed"], step) for step in reached[:1]]
            arm = line["arm"], line["digest"]
            for step, seed, value in scores:
                runs = found[line["config"], line["small"], step].setdefault(arm, {})
                runs.setdefault(seed, value)
    return found


@pytest.fixture(scope="module")
def found():
    return Results(ROOT / "results")


@pytest.fixture(scope="module")
def pages(found):
    """The documents that are made of results, as they are made today."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return docs.pages(found)


def test_the_documents_are_those_of_the_results(pages):
    for path, text in pages.items():
        assert (ROOT / path).read_text() == text, f"{path} is stale: launch/reproduce.py --docs"


@pytest.fixture(scope="module")
def text(pages):
    """The pages without what rows doubt: those numbers are of other versions of dependencies."""
    page = " ".join(" ".join(pages.values()).split())
    for table in TABLES.values():
        for doubted in (table, *table.rows):
            page = page.replace(doubted.doubt or " ", " ")
    return page


def test_every_score_is_that_of_lines(lines, text):
    scores = set()
    for arms in lines.values():
        for runs in arms.values():
            values = list(runs.values())
            for digits in DIGITS:
                sd = f"{np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
                scores.add((f"{np.mean(values):.{digits}f}", sd, str(len(values))))
    written = SCORE.findall(text)
    assert len(written) > 20
    assert set(written) <= scores


def test_every_interval_is_that_of_lines(lines, text):
    intervals = set()
    for arms in lines.values():
        for values in (list(runs.values()) for runs in arms.values() if len(runs) > 1):
            ends = np.mean(values), *_interval(values)
            intervals |= {tuple(f"{x:.{digits}f}" for x in ends) for digits in DIGITS}
    written = INTERVAL.findall(text)
    assert len(written) > 20
    assert set(written) <= intervals


def _interval(values):
    """Student's t interval of the mean."""
    half = _quantile(len(values)) * np.std(values, ddof=1) / len(values) ** 0.5
    return np.mean(values) - half, np.mean(values) + half


@functools.cache
def _quantile(n):
    return scipy.stats.t.ppf(0.975, n - 1)


def test_every_difference_is_that_of_lines(lines, text):
    """Of two arms of one row, or of two rows of one config file."""
    differences, of_one_seed = set(), set()
    of_file = defaultdict(list)
    for (config, small, step), arms in lines.items():
        if step == "the last" or not config.startswith("league"):
            of_file[COMPARED.match(config)[0], small, step] += arms.values()
    for arms in of_file.values():
        for ours, theirs in itertools.permutations(arms, 2):
            deltas = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
            if len(deltas) == 1:
                of_one_seed.add(f"{deltas[0]:+.2f}")
            if len(deltas) > 1 and np.ptp(deltas):  # rows may share runs
                low, high = _interval(deltas)
                for digits in DIGITS:
                    form = f"+.{digits}f"
                    differences.add(tuple(f"{x:{form}}" for x in (np.mean(deltas), low, high)))
    written = DIFFERENCE.findall(text)
    assert len(written) > 20
    assert {tuple(numbers) for *numbers, mark in written if not mark} <= differences
    for mean, low, high, mark in written:
        if mark:
            assert mean in of_one_seed
            assert float(low) < float(mean) < float(high)


@pytest.mark.parametrize("page", ["findings", "faq", "evidence", "recall", "league"])
def test_a_page_has_no_score_of_its_own(page):
    bare = findings._PLACE.sub("", (ROOT / "papers" / f"{page}.md").read_text())
    bare = re.sub(r"```.*?```|`[^`]*`", "", bare, flags=re.DOTALL)  # such as a scheme's constants
    assert not re.findall(r"\d+\.\d+|(?<!\w)[+−-]\d|\d ?%", bare)


def test_a_place_is_the_difference_of_lines(tmp_path, found):
    (entry,) = registry.entries("attention/table6", 1, small=True)
    page = tmp_path / "page.md"
    page.write_text("{attention/table6 row 1 scaled: mimetic - norm_matched}")
    runs = {
        arm: {line.seed: line.value for line in found.of(entry.spec) if line.arm == arm}
        for arm in ("mimetic", "norm_matched")
    }
    mean = np.mean([runs["mimetic"][seed] - runs["norm_matched"][seed] for seed in range(3)])
    text = findings.findings(found, page)
    assert text.startswith(f"{mean:+.3f} [")
    assert text.endswith("] (n = 3)")


def test_a_place_may_name_two_rows(tmp_path, found):
    page = tmp_path / "page.md"
    page.write_text("{evidence/text row 1: mimetic - row 3: norm_matched}")
    ours, theirs = (
        {line.seed: line.value for line in found.of(entry.spec) if line.arm == arm}
        for arm, row in (("mimetic", 1), ("norm_matched", 3))
        for entry in registry.entries("evidence/text", row)
    )
    mean = np.mean([ours[seed] - theirs[seed] for seed in range(3)])
    assert findings.findings(found, page).startswith(f"{mean:+.3f} [")


def test_a_place_may_name_a_step(tmp_path, found):
    (entry,) = registry.entries("attention/table6", 1, small=True)
    page = tmp_path / "page.md"
    page.write_text("{attention/table6 row 1 scaled: mimetic at 0}")
    starts = [dict(line.curve)[0] for line in found.of(entry.spec) if line.arm == "mimetic"]
    mean, sd = np.mean(starts), np.std(starts, ddof=1)
    assert findings.findings(found, page) == f"{mean:.3f} ± {sd:.3f} (n = 3)"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("mimetic at x2", "40.00 ± 14.14 (n = 2)"),
        ("mimetic to goal", "15 ± 7 (n = 2)"),
        ("mimetic - default at x2", "+15.00 [-48.53, +78.53] (n = 2)"),
        ("default to goal", "20 (n = 1 of 2)"),
        ("shuffled to goal", "never (n = 2)"),
    ],
)
def test_a_place_may_name_another_number(place, expected, tmp_path, monkeypatch):
    runs = {
        "default": ((90, 96), (10, 40)),
        "mimetic": ((97, 98), (30, 50)),
        "shuffled": ((50, 60), (0, 0)),
    }
    firsts = {"default": (0, 20), "mimetic": (96, 20), "shuffled": (0, 0)}
    found = {
        arm: ArmResult(
            arm,
            {
                seed: Record(
                    arm=arm,
                    seed=seed,
                    score="recall",
                    value=values[seed],
                    curve=((10, firsts[arm][seed]), (20, values[seed])),
                    elsewhere={"x2": far[seed]},
                )
                for seed in (0, 1)
            },
        )
        for arm, (values, far) in runs.items()
    }
    page = tmp_path / "page.md"
    page.write_text(f"{{evidence/text row 1: {place}}}")
    monkeypatch.setattr(findings._Rows, "arms", lambda self, entry: found)
    assert findings.findings(Results(tmp_path), page) == expected


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("{attention/table99 row 1: mimetic}", "unknown table attention/table99"),
        ("{attention/table6 row 1 scaled: mimesis}", "no runs of mimesis; there are those of"),
        ("{structured/table1 row 1: mimetic}", "no runs of mimetic; there are those of none"),
        ("{attention/table6 row 40: mimetic}", "--row=40"),
        ("{attention/table6 row 1 scaled: mimetic at 7}", "step 7 was not evaluated"),
        ("{attention/table6 row 1 scaled: mimetic at x2}", "test set x2 was not evaluated"),
        ("{attention/table6 row 1 scaled: mimetic to goal}", "test bits/char has no goal"),
    ],
)
def test_a_place_without_runs_is_one_line(place, words, tmp_path, found):
    page = tmp_path / "page.md"
    page.write_text(place)
    with pytest.raises(InputError, match=words):
        findings.findings(found, page)


def test_the_readme_copies_its_numbers_from_the_pages():
    (section,) = re.findall(
        r"\n## Which scheme when\n(.*?)\n## ", (ROOT / "README.md").read_text(), re.S
    )
    intervals = re.findall(r"[+-][\d.]+ \[[^\]]+\]", section)
    assert len(intervals) > 5
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert [interval for interval in intervals if interval not in pages] == []
