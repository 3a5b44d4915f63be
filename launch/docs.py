"""Tables of the results inside of hand-written pages, each between two markers:

    <!-- table: attention/table1 -->
    …
    <!-- end -->

`table: PAPER/TABLE` has what the paper printed and what we trained of it, `table: papers` a line
for each of these tables, `table: evidence` and `table: transformers` our own questions,
`table: league` the league and `table: today` what helps today's models. What a page has no room
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
from collections.abc import Callable, Iterator, Mapping, Sequence

from launch import league, tables
from launch.marks import Mark, marks_of_lines, reached
from launch.registry import Entry, Spec, entries, scaled_entries
from launch.results import Results
from mimetic_jax.base.errors import unknown
from mimetic_jax.train.report import DEFAULT, ArmResult, markdown
from mimetic_jax.train.statistics import Difference, probability_of_improvement
from papers import TABLES

FOLDER = pathlib.Path("docs")
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

CSV = FOLDER / "results.csv"

_PAPERS = {"attention": "mimetic", "structured": "impulse", "mlp": "mean_shift"}
"""The papers, each with its own initialization as configurations name the arm."""

_EVIDENCE = tuple(
    f"evidence/{table}"
    for table in ("demo", "ptb", "today", "images", "tokens", "images_rates", "recipe")
)
"""Tables of our own questions in the table of results.md; the text of the others has an embedding
that positions drown."""

_NOTHING = ("", "", "", "")
"""Our cells of a row that has no run."""

_TODAY = tuple(name for name in TABLES if name.startswith("today/"))

_TRANSFORMERS = ("recall/attention", "recall/positions", "recall/induction")
"""Tables of transformers that copy, in one table of recall.md."""

_METHODS = ("mimetic", "strong", "vision", "impulse", "mean_shift", "conv")
"""The papers' initializations, with other constants too."""


def pages(results: Results) -> dict[pathlib.Path, str]:
    """The pages that have tables, with those of today's results, and the CSV beside them."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
    found = {path: filled(text, results) for path, text in texts.items() if BLOCK.search(text)}
    return found | {CSV: _csv(results)}


def filled(page: str, results: Results) -> str:
    """A page with the tables of some results between its markers.

    Raises:
        InputError: a marker names no table.
    """
    return BLOCK.sub(lambda found: f"{found[1]}\n{_block(found[2], results)}\n{found[3]}", page)


def _block(name: str, results: Results) -> str:
    whole: dict[str, Callable[[Results], str]] = {
        "league": league.league_table,
        "today": functools.partial(league.settings_table, _TODAY),
        "papers": _papers,
        "evidence": functools.partial(_methods, _EVIDENCE),
        "transformers": functools.partial(_methods, _TRANSFORMERS),
    }
    if name in whole:
        return whole[name](results) + "\n"
    if name not in TABLES:
        raise unknown("table", name, [*TABLES, *whole])
    table = TABLES[name]
    if table.trials:
        return f"{_caption(name, results)}\n{league.task_table(name, results)}\n"
    if any(map(tables.is_published, entries(name))):
        return f"{_caption(name, results)}\n{_published(name, results)}\n"
    rows = [entry for entry in _rows(name) if results.of(entry.spec)]
    if not rows:
        return "No row has been trained.\n"
    marks = marks_of_lines(rows, results)
    return f"{_caption(name, results)}\n{tables.table(rows, results, marks, full=False)}\n"


def _caption(name: str, results: Results) -> str:
    table = TABLES[name]
    text = f"{table.title[0].upper()}{table.title[1:]} ({table.score})."
    ran = (entry.row for entry in scaled_entries(name) if results.of(entry.spec))
    smalls = (row.small or table.small for row in ran)
    scales = dict.fromkeys(small.says for small in smalls if small)
    if scales and name.partition("/")[0] in _PAPERS:
        text += f" Ours are scaled down: {'; '.join(scales)}."
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def _rows(name: str) -> list[Entry]:
    """All rows of a table, full and scaled down."""
    return [*entries(name), *scaled_entries(name)]


@functools.cache
def _reached(spec: Spec, name: str, results: Results) -> Mapping[str, ArmResult]:
    """What the arms of a row of a table reached."""
    rows = [entry for entry in _rows(name) if entry.spec == spec]
    marks: Mapping[str, Mark] = marks_of_lines(rows, results).get(spec, {})
    return reached(spec, results, marks)


def _differences(
    ours: ArmResult, found: Mapping[str, ArmResult]
) -> tuple[Difference | None, Difference | None]:
    """To the default, and to noise of the same norms."""
    scale, structure = (
        ours.versus(found[name]) if name in found and name != ours.arm else None
        for name in (DEFAULT, ours.control)
    )
    return scale, structure


def _ours(ours: ArmResult, found: Mapping[str, ArmResult]) -> list[str]:
    """Cells: the gains over the default and over noise, the number of seeds, the verdict."""
    scale, structure = _differences(ours, found)
    form = f".{ours.score.digits}f"
    return [
        *(f"{one:{form}}" if one else "" for one in (scale, structure)),
        str(min(one.n for one in (scale, structure) if one)) if scale or structure else "",
        tables.verdict(scale, structure, ours.score.higher),
    ]


def _lines(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return markdown({name: [line[i] for line in lines] for i, name in enumerate(head)})


def _published(name: str, results: Results) -> str:
    """What each row prints, beside ours: of the row's size, else scaled down."""
    scaled = {entry.number: entry for entry in scaled_entries(name)}
    lines = []
    for entry in entries(name):
        row = entry.row
        ran = next(
            (one for one in (entry, scaled.get(entry.number)) if one and results.of(one.spec)), None
        )
        found = _reached(ran.spec, name, results) if ran else {}
        label = f"{entry.number}. {row.label}"
        arms = [arm for arm in row.published if arm != DEFAULT] or list(row.published)
        scores = [tables.printed(row.published[arm]) for arm in arms]
        start = ""
        if DEFAULT in row.published and arms != [DEFAULT]:
            start = f"{tables.printed(row.published[DEFAULT])} → "
        if row.best:
            lines.append((label, f"best of {len(arms)}", scores[0], *_NOTHING))
        elif found:
            for arm, score in zip(arms, scores, strict=True):
                cells = _ours(found[arm], found) if arm in found else _NOTHING
                lines.append((label, arm, start + score, *cells))
        elif arms:
            lines.append((label, ", ".join(arms), start + ", ".join(scores), *_NOTHING))
        for other, value in row.others.items():
            lines.append((label, other, tables.printed(value), *_NOTHING))
    return _lines(
        ("row", "arm", "published", "Δ default, ours", "Δ noise, ours", "n", "verdict"), lines
    )


def _papers(results: Results) -> str:
    """A line for each table of the papers: the published gains, and ours where it was trained."""
    lines = []
    for name, table in TABLES.items():
        method = _PAPERS.get(name.partition("/")[0])
        if method is None:
            continue
        units: dict[str, list[float]] = {}
        for row in table.rows:
            if {method, DEFAULT} <= row.published.keys():
                gain = row.published[method] - row.published[DEFAULT]
                units.setdefault(row.score or table.score, []).append(gain)
        ran = [entry for entry in _rows(name) if results.of(entry.spec)]
        if not units and not ran:
            continue
        trained = []
        for entry in ran:
            found = _reached(entry.spec, name, results)
            for arm in (arm for arm in _METHODS if arm in found and arm in entry.init):
                *cells, verdict = _ours(found[arm], found)
                size = "scaled down" if entry.spec.small else "the paper's"
                unit = entry.row.score or table.score
                span = _span(units.get(unit, []), unit)
                line = (f"{name}, {entry.row.label}: {arm}", span, *cells, size, verdict)
                trained.append((unit, line))
        done = {unit for unit, _ in trained}
        lines += [line for _, line in trained]
        lines += [
            (f"{name}, {unit}", _span(gains, unit), "", "", "", "", "")
            for unit, gains in units.items()
            if unit not in done
        ]
    return _lines(
        ("table", "published gain", "Δ default, ours", "Δ noise, ours", "n", "scale", "verdict"),
        lines,
    )


def _span(gains: Sequence[float], unit: str) -> str:
    """The smallest and the largest of some gains.

    >>> _span([7.769, 3.15], "accuracy %"), _span([-0.023], "bits/char"), _span([], "perplexity")
    ('+3.15 to +7.77', '-0.023', '')
    """
    form = "+.3f" if unit.startswith("bits") else "+.2f"
    ends = dict.fromkeys(f"{gain:{form}}" for gain in (min(gains), max(gains))) if gains else ()
    return " to ".join(ends)


def _methods(names: Sequence[str], results: Results) -> str:
    """The methods in the rows of some tables, each with the default and its noise beside it."""
    lines = []
    for name in names:
        for entry in _rows(name):
            found = _reached(entry.spec, name, results) if results.of(entry.spec) else {}
            for arm in (arm for arm in _METHODS if arm in found and arm in entry.init):
                lines.append((f"{name}, {entry.row.label}", arm, *_ours(found[arm], found)))
    return _lines(("setting", "arm", "Δ default", "Δ noise", "n", "verdict"), lines)


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
            rows = {entry.number: entry for entry in entries(name)}
            for one in standings:
                cells = _csv_cells(one.result, one.gain, one.structure, standings[0].result)
                writer.writerow([*_csv_line(rows[one.row], one.result, results, cells)])
            continue
        for entry in _rows(name):
            found = _reached(entry.spec, name, results) if results.of(entry.spec) else {}
            for ours in found.values():
                cells = _csv_cells(ours, *_differences(ours, found), found.get(DEFAULT))
                writer.writerow([*_csv_line(entry, ours, results, cells)])
    return file.getvalue()


def _csv_line(
    entry: Entry, ours: ArmResult, results: Results, cells: Iterator[object]
) -> Iterator[object]:
    """A line of the CSV: what the arm is, its numbers, and the commands of its runs."""
    small = entry.spec.small
    yield from (entry.table, entry.row.label, "yes" if small else "", ours.arm)
    yield "" if small else entry.row.published.get(ours.arm, "")
    yield from cells
    lines = [line for line in results.of(entry.spec) if line.arm == ours.arm]
    yield "; ".join(dict.fromkeys(f"{line.command} (jax {line.jax})" for line in lines))


def _csv_cells(
    ours: ArmResult,
    scale: Difference | None,
    structure: Difference | None,
    default: ArmResult | None,
) -> Iterator[object]:
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
