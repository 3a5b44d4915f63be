"""Tables of the results inside of hand-written pages, each between two markers:

    <!-- table: attention -->
    …
    <!-- end -->

`table: PAPER` has what a paper printed and what we trained of it, `table: PAPER/TABLE` a table
without published numbers, `table: papers` a line for each table of the papers, `table: evidence`
and `table: transformers` our own questions, `table: league` the league and `table: today` what
helps today's models. What a page has no room
for is in docs/results.csv: every arm with its spread, how often it is better
than the default, and the commands of its runs.
"""

from __future__ import annotations

import csv
import functools
import io
import pathlib
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from launch import league, tables
from launch.marks import counted, marks_of_lines
from launch.registry import Entry, entries, scaled_entries
from launch.results import Results
from mimetic_jax.base.errors import unknown
from mimetic_jax.train.report import DEFAULT, ArmResult
from mimetic_jax.train.statistics import Difference, probability_of_improvement
from papers import TABLES
from papers.record import Row

FOLDER = pathlib.Path("docs")
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

_PAPERS = {"attention": "mimetic", "structured": "impulse", "mlp": "mean_shift"}
"""The papers, each with its own initialization as configurations name the arm."""

_METHODS = ("mimetic", "strong", "impulse", "mean_shift", "conv")
"""The papers' initializations, with other constants too."""

_QUESTIONS = {
    "evidence": tuple(
        f"evidence/{table}"
        for table in ("demo", "ptb", "today", "images", "tokens", "images_rates")
    ),
    "transformers": ("recall/attention", "recall/positions", "recall/induction"),
}
"""Tables of our own questions that are shown as one. Of evidence, the text of the others has an
embedding that positions drown; of recall, these are transformers that copy."""


def pages(results: Results) -> dict[pathlib.Path, str]:
    """The pages that have tables, with those of today's results, and the CSV beside them."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
    found = {path: filled(text, results) for path, text in texts.items() if BLOCK.search(text)}
    return found | {FOLDER / "results.csv": _csv(results)}


def filled(page: str, results: Results) -> str:
    """A page with the tables of some results between its markers.

    Raises:
        InputError: a marker names no table.
    """
    return BLOCK.sub(lambda found: f"{found[1]}\n{_block(found[2], results)}\n{found[3]}", page)


def _block(name: str, results: Results) -> str:
    if name == "league":
        return f"{league.league_table(results)}\n"
    if name == "papers":
        return f"{_papers(results)}\n"
    if name == "today":
        today = [table for table in TABLES if table.startswith("today/")]
        return f"{league.settings_table(today, results)}\n"
    if name in _QUESTIONS:
        return f"{_questions(_QUESTIONS[name], results)}\n"
    if name in _PAPERS:
        return f"{_published(name, results)}\n"
    if name not in TABLES:
        raise unknown("table", name, [*TABLES, *_PAPERS, "papers", "league", "today", *_QUESTIONS])
    if TABLES[name].trials:
        table = league.task_table(name, results)
    else:
        rows = [entry for entry, found in _rows(name, results) if found]
        if not rows:
            return "No row has been trained.\n"
        table = tables.table(rows, results, marks_of_lines(rows, results), full=False)
    return f"{_caption(name, results)}\n{table}\n"


@functools.cache
def _rows(name: str, results: Results) -> list[tuple[Entry, dict[str, ArmResult]]]:
    """All rows of a table, full and scaled down, with what their arms reached."""
    return counted([*entries(name), *scaled_entries(name)], results)


def _caption(name: str, results: Results) -> str:
    table = TABLES[name]
    text = f"{table.title[0].upper()}{table.title[1:]} ({table.score})."
    if name.partition("/")[0] in _PAPERS and (scales := _scales(name, results)):
        text += f" Ours are scaled down: {scales}."
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def _scales(name: str, results: Results) -> str:
    """How the rows of a table that were trained were scaled down."""
    ran = [entry.row for entry, found in _rows(name, results) if found and entry.spec.small]
    smalls = (row.small or TABLES[name].small for row in ran)
    return "; ".join(dict.fromkeys(small.says for small in smalls if small))


def _ours(ours: ArmResult, found: Mapping[str, ArmResult]) -> list[str]:
    """Cells: the gains over the default and over noise, the number of seeds, the verdict."""
    scale, structure = tables.differences(ours, found)
    form = f".{ours.score.digits}f"
    return [
        *(f"{one:{form}}" if one else "" for one in (scale, structure)),
        str(min(one.n for one in (scale, structure) if one)) if scale or structure else "",
        tables.verdict(scale, structure, ours.score.higher),
    ]


def _methods(name: str, results: Results) -> Iterator[tuple[Entry, str, list[str]]]:
    """The papers' methods in the rows of a table that were trained, with the cells of `_ours`."""
    for entry, found in _rows(name, results):
        for arm in (arm for arm in _METHODS if arm in found and arm in entry.init):
            yield entry, arm, _ours(found[arm], found)


def _published(paper: str, results: Results) -> str:
    """What each row of a paper's tables prints, beside ours: as printed, else scaled down."""
    lines: list[Sequence[str]] = []
    scaled = []
    for name, table in TABLES.items():
        if name.partition("/")[0] != paper or not any(map(tables.is_published, entries(name))):
            continue
        lines.append((f"**{name.partition('/')[2]}: {table.title}, {table.score}**",))
        if scales := _scales(name, results):
            scaled.append(f"Ours of {name.partition('/')[2]} are scaled down: {scales}.")
        ran = {(entry.number, entry.spec.small): found for entry, found in _rows(name, results)}
        for number, row in enumerate(table.rows, 1):
            found = ran[number, False] or ran.get((number, True), {})
            lines += _beside(f"{number}. {row.label}", row, found)
    head = ("row", "arm", "published", "Δ default, ours", "Δ noise, ours", "n", "verdict")
    return "\n".join([tables.lines(head, lines), *(["", *scaled] if scaled else [])])


def _beside(label: str, row: Row, found: Mapping[str, ArmResult]) -> Iterator[Sequence[str]]:
    """Lines of a row: its published scores after the default's, each with our gains."""
    printed = {arm: tables.printed(score) for arm, score in row.published.items()}
    start = f"{printed.pop(DEFAULT)} → " if DEFAULT in printed and len(printed) > 1 else ""
    if row.best:
        yield label, f"best of {len(printed)}", next(iter(printed.values()))
    elif found:
        for arm, text in printed.items():
            yield label, arm, start + text, *(_ours(found[arm], found) if arm in found else ())
    elif printed:
        yield label, ", ".join(printed), start + ", ".join(printed.values())
    for other, score in row.others.items():
        yield label, other, tables.printed(score)


def _papers(results: Results) -> str:
    """A line for each table of the papers: the published gains, and ours where it was trained."""
    lines: list[Sequence[str]] = []
    for name, table in TABLES.items():
        method = _PAPERS.get(name.partition("/")[0], "")
        gains: dict[str, list[float]] = defaultdict(list)
        for row in table.rows:
            if method and {method, DEFAULT} <= row.published.keys():
                gain = row.published[method] - row.published[DEFAULT]
                gains[row.score or table.score].append(gain)
        ranges = {unit: _span(of_unit, unit) for unit, of_unit in gains.items()}
        left = dict(ranges)
        for entry, arm, (*cells, verdict) in _methods(name, results) if method else ():
            unit = entry.row.score or table.score
            size = "scaled down" if entry.spec.small else "the paper's"
            label = f"{name}, {entry.row.label}: {arm}"
            lines.append((label, ranges.get(unit, ""), *cells, size, verdict))
            left.pop(unit, None)
        lines += [(f"{name}, {unit}", published) for unit, published in left.items()]
    return tables.lines(
        ("table", "published gain", "Δ default, ours", "Δ noise, ours", "n", "scale", "verdict"),
        lines,
    )


def _span(gains: Sequence[float], unit: str) -> str:
    """The smallest and the largest of some gains.

    >>> _span([7.769, 3.15], "accuracy %"), _span([-0.023], "bits/char")
    ('+3.15 to +7.77', '-0.023')
    """
    form = "+.3f" if unit.startswith("bits") else "+.2f"
    return " to ".join(dict.fromkeys(f"{gain:{form}}" for gain in (min(gains), max(gains))))


def _questions(names: Sequence[str], results: Results) -> str:
    """The methods in the rows of some tables, each with the default and its noise beside it."""
    lines = [
        (f"{name}, {entry.row.label}", arm, *cells)
        for name in names
        for entry, arm, cells in _methods(name, results)
    ]
    return tables.lines(("setting", "arm", "Δ default", "Δ noise", "n", "verdict"), lines)


def _csv(results: Results) -> str:
    """Every arm of every row that was trained; arms of the league at their own best rate."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    head = ["table", "row", "scaled down", "arm", "published", "score", "n", "mean", "sd"]
    for name in ("default", "noise"):
        head += [f"gain over {name}", "low", "high"]
    writer.writerow([*head, "P(better than default)", "verdict", "commands"])
    for name, table in TABLES.items():
        if table.trials:
            standings = league.standings(name, results)
            for one in standings:
                found = one.result, one.gain, one.structure, standings[0].result
                writer.writerow(_csv_line(one.entry, *found, results))
            continue
        for entry, arms in _rows(name, results):
            for ours in arms.values():
                differences = tables.differences(ours, arms)
                line = _csv_line(entry, ours, *differences, arms.get(DEFAULT), results)
                writer.writerow(line)
    return file.getvalue()


def _csv_line(
    entry: Entry,
    ours: ArmResult,
    scale: Difference | None,
    structure: Difference | None,
    default: ArmResult | None,
    results: Results,
) -> Iterator[object]:
    """A line of the CSV: what the arm is, its numbers, and the commands of its runs."""
    small = entry.spec.small
    yield from (entry.table, entry.row.label, "yes" if small else "", ours.arm)
    yield "" if small else entry.row.published.get(ours.arm, "")
    digits, scores = ours.score.digits + 1, list(ours.reached.values())
    yield from (ours.score.label, len(scores), round(ours.mean, digits))
    yield "" if ours.sd is None else round(ours.sd, digits)
    for one in (scale, structure):
        numbers = (one.mean, one.low, one.high) if one else (None, None, None)
        yield from ("" if number is None else round(number, digits) for number in numbers)
    theirs = list(default.reached.values()) if scale and default else []
    enough = min(len(scores), len(theirs)) >= 5
    yield probability_of_improvement(scores, theirs, ours.score.higher) if enough else ""
    yield tables.verdict(scale, structure, ours.score.higher)
    lines = [line for line in results.of(entry.spec) if line.arm == ours.arm]
    yield "; ".join(dict.fromkeys(f"{line.command} (jax {line.jax})" for line in lines))
