"""The tables in docs/ are those of results/PAPER/TABLE/ROW.jsonl, read here without our code."""

import itertools
import json
import pathlib
import re
import subprocess
from collections import defaultdict

import numpy as np
import pytest

from configs import arms as known_arms
from launch import forest
from launch import tables as shown
from launch.results import ResultStore
from mimetic_jax import schemes
from mimetic_jax.base.errors import InputError
from papers import FIGURES, TABLES, rows_of

ROOT = pathlib.Path(__file__).parents[2]
SCORE = re.compile(r"\| (\d+\.\d+)(?: ± (\d+\.\d+))? \((\d+)\)")
DIFFERENCE = re.compile(r"([+-]\d+\.\d+) \[([+-]\d+\.\d+), ([+-]\d+\.\d+)\]")
DIGITS = (2, 3)


@pytest.fixture(scope="module")
def results() -> ResultStore:
    return ResultStore(ROOT / "results")


@pytest.fixture(scope="module")
def files() -> list[list[dict]]:
    """The header and the records of each row."""
    texts = (path.read_text() for path in sorted(ROOT.glob("results/*/*/*.jsonl")))
    return [[json.loads(line) for line in text.splitlines()] for text in texts]


@pytest.fixture(scope="module")
def scores(files) -> dict[str, list[dict[int, float]]]:
    """Scores by seed of every arm, by what may be compared; trials are arms of their own."""
    found = {}
    for header, *records in files:
        arms: dict[str, dict[int, float]] = defaultdict(dict)
        for record in records:
            arms[record["arm"]].setdefault(record["seed"], record["value"])
        found[f"{header['table']} {header['row']} {header['small']}"] = list(arms.values())
    return found


@pytest.fixture(scope="module")
def blocks() -> str:
    """All open tables of pages; those that are closed have no records here."""
    return tables(lambda name: not (ROOT / shown.CLOSED / f"{name}.md").exists())


def tables(is_shown=lambda name: True) -> str:
    """The tables of pages with some names."""
    paths = [*(ROOT / "docs").glob("*.md"), *(ROOT / "results/tables").glob("*.md")]
    pages = (path.read_text() for path in sorted(paths))
    found = [block for page in pages for block in shown.BLOCK.finditer(page)]
    every = (line for block in found if is_shown(block[2]) for line in block[0].splitlines())
    return "\n".join(line for line in every if line.startswith("|"))


def test_results_are_those_of_rows_as_they_are_today(files):
    """None is of a row that papers/ lacks, and more runs of each may be added."""
    recipes: dict[tuple, str] = {}
    for name, small in itertools.product([*TABLES, *FIGURES], (False, True)):
        for row in rows_of(name, small):  # tables first, whose runs figures may share
            recipes.setdefault(row.key, row.recipe())
    for header, *_ in files:
        key = header["table"], header["row"], header["small"]
        assert recipes.get(key) == header["recipe"], key


def test_the_pages_have_the_tables_of_today(results, monkeypatch):
    monkeypatch.chdir(ROOT)
    for path, text in shown.pages(results).items():
        assert path.read_text() == text, f"{path} is stale: launch/reproduce.py --docs"


def test_a_marker_that_names_no_table_is_an_error(results):
    with pytest.raises(InputError, match="unknown table 'attention/table11'"):
        shown.block("attention/table11", results)


def test_every_score_is_that_of_records(scores, blocks):
    known = set()
    for values in (list(runs.values()) for arms in scores.values() for runs in arms):
        for digits in DIGITS:
            sd = f"{np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
            known.add((f"{np.mean(values):.{digits}f}", sd, str(len(values))))
    written = SCORE.findall(blocks)
    assert len(written) > 30
    assert set(written) <= known


def test_records_that_nobody_can_check_out_say_so(files):
    """Those of commits that this history lacks, and of code that differed from its commit."""

    def git(*call: str) -> list[str]:
        done = subprocess.run(["git", "-C", str(ROOT), *call], capture_output=True, text=True)
        return done.stdout.split()

    if git("rev-parse", "--is-shallow-repository") != ["false"]:
        pytest.skip("needs the whole history")
    commits = set(git("rev-list", "HEAD"))
    for header, *records in files:
        for record in records:
            if commit := record.get("commit"):
                remark = header["remarks"].get(record["arm"], "")
                known = commit.removesuffix("-dirty") in commits
                assert ("commit in no clone" in remark) != known, commit
                assert ("changed code" in remark) == commit.endswith("-dirty"), commit


def test_every_difference_is_that_of_records(scores, blocks):
    """Means by pairs of arms; intervals are around them, as wide as a few seeds leave them."""
    known = set()
    for arms in scores.values():
        for ours, theirs in itertools.permutations(arms, 2):
            if deltas := [ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()]:
                known |= {f"{np.mean(deltas):+.{digits}f}" for digits in DIGITS}
    written = DIFFERENCE.findall(blocks)
    assert len(written) > 40
    assert {mean for mean, *_ in written} <= known
    for mean, low, high in (map(float, one) for one in written):
        assert (low + high) / 2 == pytest.approx(mean, abs=0.0101)
        assert low < mean < high


def test_prose_has_no_interval_that_is_in_no_table():
    """Nor in a table that is written by hand: those of results/, open and closed, have each."""
    written = [*(ROOT / "results/closed").rglob("*.md"), *(ROOT / "results/tables").glob("*.md")]
    texts = "".join(path.read_text() for path in written).replace("−", "-")
    known = set(DIFFERENCE.findall(tables() + texts))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = " ".join(shown.BLOCK.sub("", path.read_text()).replace("−", "-").split())
        assert set(DIFFERENCE.findall(text)) <= known, path.name


def test_the_figure_of_claims_has_the_numbers_of_tables(results):
    shown_claims = [forest.differences(c, results) for panel in forest.PANELS for c in panel.claims]
    assert shown_claims[0]["default"] == (4.79, 3.64, 5.93)
    assert all("default" in found and len(found) > 1 for found in shown_claims)


LEFT_OUT = {
    ("closed/why/exclusive_digits.md", "+15.44 [+9.91, +20.98]"): "the runs of trained/digits",
    ("closed/papers/small_rows.md", "-0.32 [-3.73, +3.09]"): "trained again in another size",
    ("closed/papers/small_rows.md", "-23.98 [-35.13, -12.82]"): "trained again in another size",
    ("closed/papers/small_rows.md", "+6.63 [+4.28, +8.98]"): "trained again in another size",
}


def mimetic_rows(path):
    """Rows of the arm `mimetic` with a rate of its own, a default and a norm-matched control."""
    head: list[str] = []
    for line in path.read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        head = (head or cells) if line.startswith("|") else []
        row = dict(zip(head, cells, strict=True)) if head else {}
        column = "Δ {} [95% CI]".format
        # Where the default has sin-cos positions, the column is named after these.
        default = row.get(column("default")) or row.get(column("sincos"), "")
        pair = [default, row.get(column("norm-matched"), "")]
        if "mimetic" in cells[:2] and row.get("best at") and all(map(DIFFERENCE.search, pair)):
            yield *pair, row["verdict"]


def test_the_sentence_that_answers_counts_all_tables():
    page, results = ROOT / "results/notes/attention.md", ROOT / "results"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| [")]
    listed, gains = set(), 0
    for row in rows:
        link, default, noise, both = re.fullmatch(
            r"\| \[.*?\]\((.*?)\) \|.*?\| (.*?) \| (.*?) \| (yes|no) \|", row
        ).groups()
        path = (page.parent / link).resolve()
        (verdict,) = (x for *pair, x in mimetic_rows(path) if pair == [default, noise])
        gained = verdict in ("improvement by alignment", "improvement over norm-matched")
        assert gained == (both == "yes"), (link, verdict)
        listed.add((str(path.relative_to(results)), default))
        gains += gained
    found = {
        (str(path.relative_to(results)), default)
        for path in [*(results / "closed").rglob("*/*.md"), *(results / "tables").glob("*.md")]
        for default, *_ in mimetic_rows(path)
    }
    assert found - listed == LEFT_OUT.keys()
    said = re.search(r"in (\d+) of (\d+) comparisons", (ROOT / "docs/results.md").read_text())
    assert [int(x) for x in said.groups()] == [gains, len(rows)]


def test_pairs_are_of_arms_of_their_row():
    rows = [row for table in TABLES.values() for row in table.rows if row.pairs]
    assert rows
    assert all({*itertools.chain(*row.pairs)} <= {*row.arms} for row in rows)


def test_a_table_fits_a_page():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for row in re.findall(r"^\|.*\|$", path.read_text(), re.MULTILINE):
            assert len(row) <= 400, f"{path.name}: {row[:80]}"


def test_a_table_names_its_default_and_has_rows_that_were_trained_both_ways_as_printed(results):
    page = shown.block("attention", results)
    assert re.search(r"1\. 96/6/3 .* 84\.75 → 87\.90 +\|( +\|)? 88\.33 ± 0\.08 \(2\)", page)
    assert "Scaled down in table1 means" not in page
    page = shown.block("attention/table1", results)
    assert "The default is timm's N(0, .02²) initialization" in page


def test_a_closed_table_is_shown_as_it_stands(results, tmp_path, monkeypatch):
    monkeypatch.setattr(shown, "CLOSED", tmp_path)
    (tmp_path / "old.md").write_text("# old\n\nhow it was trained\n\n---\n\n| its numbers |\n")
    assert shown.block("old", results) == "| its numbers |"


def test_closing_a_table_keeps_its_page(results, tmp_path, monkeypatch):
    """With the commands, commits and hardware of its runs."""
    before = shown.block("attention/table1", results)
    monkeypatch.setattr(shown, "CLOSED", tmp_path)
    path = shown.close("attention/table1", results)
    assert shown.block("attention/table1", results) == before
    about = path.read_text().partition("---")[0]
    assert "NVIDIA H200" in about
    assert "`python launch/reproduce.py attention/table1 --row=1 --data_dir=DIR`" in about
    with pytest.raises(InputError, match="has no results"):
        shown.close("attention/table3", results)


def recommended() -> list[tuple[str, str]]:
    """The calls in a column "Use", with their page."""
    found = []
    for page in ("README.md", "docs/recommended.md"):
        _, _, below = (ROOT / page).read_text().partition("| You train | Use |")
        for line in below.partition("\n\n")[0].splitlines()[2:]:
            cell = line.split("|")[2].strip()
            found += [(page, cell.strip("`"))] if cell.startswith("`") else []
    return found


@pytest.mark.parametrize(("page", "call"), recommended())
def test_what_is_recommended_was_trained(page, call):
    """An arm with these schemes has results, open or closed."""
    scheme = eval(call, {**vars(schemes), "base": 10_000})  # of our own pages
    scheme = scheme if isinstance(scheme, tuple) else (scheme,)
    every = (known_arms.vision(), known_arms.few_images(), known_arms.language())
    every += (known_arms.first_layer(), known_arms.positional())
    names = {name for group in every for name, arm in group.items() if arm == scheme}
    assert names, f"{page}: no arm is {call}"
    lines = (path.read_text() for path in (ROOT / "results").rglob("*.jsonl"))
    closed = (path.read_text() for path in (ROOT / "results/closed").rglob("*.md"))
    trained = set(re.findall(r'"arm": "(\w+)"', "".join(lines)))
    trained |= set(re.findall(r"^\| [^|]+ \| (\w+) +\|", "".join(closed), re.MULTILINE))
    assert names & trained, f"{page}: {call} is {names}, of which nothing was trained"
