"""The first page of docs/results.md, and that each score of the document is that of lines."""

import doctest
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
from papers import TABLES

ROOT = pathlib.Path(__file__).parents[2]

SCORE = re.compile(r"(?<![-+\d])(\d+\.\d+)(?: ± (\d+\.\d+))? \((?:n = )?(\d+)\)")
# † marks an interval over the test images of one seed, which is no t interval.
DIFFERENCE = re.compile(r"([+-]\d+\.\d+) \[([+-]\d+\.\d+), ([+-]\d+\.\d+)\](†?)")


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
            scores = [("the last", seed, value) for seed, value in pairs if value is not None]
            scores += [(step, line["seed"], value) for step, value in line.get("curve", [])]
            arm = line["arm"], line["digest"]
            for step, seed, value in scores:
                runs = found[line["config"], line["small"], step].setdefault(arm, {})
                runs.setdefault(seed, value)
    return found


def test_doctests():
    assert doctest.testmod(findings).attempted
    assert not doctest.testmod(findings).failed


@pytest.fixture
def text():
    """The page without what rows doubt: those numbers are of other versions of dependencies."""
    page = " ".join(docs.PATH.read_text().split())
    for table in TABLES.values():
        for doubted in (table, *table.rows):
            page = page.replace(doubted.doubt or " ", " ")
    return page


def test_every_score_is_that_of_lines(lines, text):
    scores = set()
    for arms in lines.values():
        for runs in arms.values():
            values = list(runs.values())
            for digits in (2, 3):
                sd = f"{np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
                scores.add((f"{np.mean(values):.{digits}f}", sd, str(len(values))))
    written = SCORE.findall(text)
    assert len(written) > 20
    assert set(written) <= scores


def test_every_difference_is_that_of_lines(lines, text):
    """Of two arms of one row, or of two rows of one config file."""
    differences, of_one_seed = set(), set()
    of_file = defaultdict(list)
    for (config, small, step), arms in lines.items():
        of_file[re.split("[: ]", config)[0], small, step] += arms.values()
    for arms in of_file.values():
        for ours, theirs in itertools.permutations(arms, 2):
            deltas = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
            if len(deltas) == 1:
                of_one_seed.add(f"{deltas[0]:+.2f}")
            if len(deltas) > 1 and np.ptp(deltas):  # rows may share runs
                low, high = scipy.stats.t.interval(
                    0.95, len(deltas) - 1, np.mean(deltas), scipy.stats.sem(deltas)
                )
                for digits in (2, 3):
                    form = f"+.{digits}f"
                    differences.add(tuple(f"{x:{form}}" for x in (np.mean(deltas), low, high)))
    written = DIFFERENCE.findall(text)
    assert len(written) > 20
    assert {tuple(numbers) for *numbers, mark in written if not mark} <= differences
    for mean, low, high, mark in written:
        if mark:
            assert mean in of_one_seed
            assert float(low) < float(mean) < float(high)


def test_the_page_has_no_score_of_its_own():
    bare = findings._PLACE.sub("", findings.PATH.read_text())
    assert not re.findall(r"\d+\.\d+|(?<!e)[+−-]\d|\d ?%", bare)


def test_a_place_is_the_difference_of_lines(tmp_path, monkeypatch):
    (entry,) = registry.entries("attention/table6", 1, small=True)
    found = Results(ROOT / "results")
    page = tmp_path / "page.md"
    monkeypatch.setattr(findings, "PATH", page)
    page.write_text("{attention/table6 row 1 scaled: mimetic - norm_matched}")
    runs = {
        arm: {line.seed: line.value for line in found.of(entry.spec) if line.arm == arm}
        for arm in ("mimetic", "norm_matched")
    }
    mean = np.mean([runs["mimetic"][seed] - runs["norm_matched"][seed] for seed in range(3)])
    text = findings.findings(found)
    assert text.startswith(f"{mean:+.3f} [")
    assert text.endswith("] (n = 3)")


def test_a_place_may_name_two_rows(tmp_path, monkeypatch):
    found = Results(ROOT / "results")
    page = tmp_path / "page.md"
    monkeypatch.setattr(findings, "PATH", page)
    page.write_text("{evidence/text row 1: mimetic - row 3: norm_matched}")
    ours, theirs = (
        {line.seed: line.value for line in found.of(entry.spec) if line.arm == arm}
        for arm, row in (("mimetic", 1), ("norm_matched", 3))
        for entry in registry.entries("evidence/text", row)
    )
    mean = np.mean([ours[seed] - theirs[seed] for seed in range(3)])
    assert findings.findings(found).startswith(f"{mean:+.3f} [")


def test_a_place_may_name_a_step(tmp_path, monkeypatch):
    found = Results(ROOT / "results")
    (entry,) = registry.entries("attention/table6", 1, small=True)
    page = tmp_path / "page.md"
    monkeypatch.setattr(findings, "PATH", page)
    page.write_text("{attention/table6 row 1 scaled: mimetic at 0}")
    starts = [dict(line.curve)[0] for line in found.of(entry.spec) if line.arm == "mimetic"]
    mean, sd = np.mean(starts), np.std(starts, ddof=1)
    assert findings.findings(found) == f"{mean:.3f} ± {sd:.3f} (n = 3)"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("{attention/table99 row 1: mimetic}", "unknown table attention/table99"),
        ("{attention/table6 row 1 scaled: mimesis}", "no runs of mimesis; there are those of"),
        ("{structured/table1 row 1: mimetic}", "no runs of mimetic; there are those of none"),
        ("{attention/table6 row 40: mimetic}", "--row=40"),
        ("{attention/table6 row 1 scaled: mimetic at 7}", "step 7 was not evaluated"),
    ],
)
def test_a_place_without_runs_is_one_line(place, words, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    monkeypatch.setattr(findings, "PATH", page)
    page.write_text(place)
    with pytest.raises(InputError, match=words):
        findings.findings(Results(ROOT / "results"))
