"""Tables of the results inside of hand-written pages, each between two markers:

    <!-- table: attention -->
    …
    <!-- end -->

`table: PAPER` has what a paper printed and what we trained of it, `table: PAPER/TABLE` a table
without published numbers. The names of `GRIDS` are tables whose arms choose their rows, those of
`GROUPS` the methods in several tables. What a page has no room for is in docs/results.csv: every
arm with its spread, and the commands of its runs.
"""

from __future__ import annotations

import csv
import functools
import io
import pathlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from launch import league, tables
from launch.results import Line, Results
from launch.rows import rows
from launch.tables import Standing, reached
from mimetic_jax.base.errors import unknown
from mimetic_jax.train.report import BASELINES, DEFAULT
from papers import TABLES, today
from papers.league import LONG
from papers.record import Row, Table

FOLDER = pathlib.Path("docs")
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

GROUPS = {
    "evidence": tuple(
        f"evidence/{table}" for table in ("demo", "ptb", "images", "tokens", "images_rates")
    ),
    "transformers": ("recall/attention", "recall/positions", "recall/induction"),
}
"""Tables that are shown as one: our own questions, and transformers that copy."""

GRIDS = {
    "league": tuple(name for name in TABLES if name.startswith("league/") and name not in LONG),
    **{name: tuple(f"today/{task}" for task in tasks) for name, tasks in today.GRIDS.items()},
}
"""Tables that are shown as one, in which each entrant has a line and each task a column."""

_NARROW = "today_heads"
"""A grid whose columns leave no room for intervals."""

_PUBLISHED = ("attention", "structured", "mlp")
"""The papers whose numbers stand on a page."""

_STARTS = {"timm": "timm's N(0, .02²)", "torch": "PyTorch's", "flax": "Flax's"}
"""What the default is, by the `base` of a model."""

_METHODS = ("mimetic", "strong", "impulse", "mean_shift", "conv")
"""The papers' initializations, with other constants too: the arms that groups show."""


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
    return BLOCK.sub(lambda found: f"{found[1]}\n{_block(found[2], results)}\n\n{found[3]}", page)


def _block(name: str, results: Results) -> str:
    if name in GRIDS:
        intervals, most = name != _NARROW, 8 if name == "league" else None
        table = league.grid(GRIDS[name], results, intervals=intervals, most=most)
        return f"{table}\n\n{_defaults(GRIDS[name], results)}"
    if name in GROUPS:
        every = [row for table in GROUPS[name] for row in _rows(table, results)]
        table = tables.lines(tables.HEAD, [*tables.ours(every, results, _METHODS)])
        return f"{table}\n\n{_defaults(GROUPS[name], results)}"
    if name in _PUBLISHED:
        return _published(name, results)
    if name not in TABLES:
        raise unknown("table", name, [*TABLES, *_PUBLISHED, *GRIDS, *GROUPS])
    if TABLES[name].trials:
        table = league.task_table(name, results)
    else:
        table = tables.lines(tables.HEAD, [*tables.ours(_rows(name, results), results)])
    title = f"{TABLES[name].title[0].upper()}{TABLES[name].title[1:]} ({TABLES[name].score})."
    scales = _scales(_rows(name, results), TABLES[name])
    if scales and name.partition("/")[0] in _PUBLISHED:
        title += f" Ours are scaled down: {scales}."
    return f"{_filled(f'{title} {_defaults([name], results)}')}\n\n{table}"


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _defaults(names: Sequence[str], results: Results) -> str:
    """Which initialization the default arm has, in tables of which something was trained."""
    tables_of: dict[str, list[str]] = {}
    for name in names:
        for row in _rows(name, results):
            if not (found := reached(row, results)):
                continue
            shown = found.get(DEFAULT) or next(iter(found.values()))
            base = _STARTS.get(tables.newest(shown.result).base)
            if base and name not in tables_of.setdefault(base, []):
                tables_of[base].append(name)
    if len(tables_of) < 2:
        return "".join(f"The default is {base} initialization." for base in tables_of)
    parts = (f"{base} in {', '.join(of)}" for base, of in tables_of.items())
    return _filled(f"The default is {'; '.join(parts)}.")


@functools.cache
def _rows(name: str, results: Results) -> list[Row]:
    """The rows of a table, and those that were trained scaled down."""
    return [*rows(name), *(row for row in rows(name, small=True) if results.trained(row))]


def _scales(shown: Iterable[Row], table: Table) -> str:
    """How rows of a table that were trained were scaled down."""
    smalls = (row.small or table.small for row in shown if row.is_small)
    return "; ".join(dict.fromkeys(small.says for small in smalls if small))


def _published(paper: str, results: Results) -> str:
    """What each row of a paper's tables prints, beside ours: as printed, else scaled down."""
    lines: list[Sequence[str]] = []
    scaled = []
    for name, table in TABLES.items():
        printed = any(row.published or row.others for row in table.rows)
        if name.partition("/")[0] != paper or not printed:
            continue
        lines.append((f"**{name.partition('/')[2]}: {table.title}, {table.score}**",))
        trained: dict[int, tuple[Row, Mapping[str, Standing]]] = {}
        for row in _rows(name, results):  # those as printed come first
            if found := reached(row, results):
                trained.setdefault(row.number, (row, found))
        if scales := _scales((row for row, _ in trained.values()), table):
            scaled.append(f"Ours of {name.partition('/')[2]} are scaled down: {scales}.")
        for number, row in enumerate(table.rows, 1):
            _, standings = trained.get(number, (None, {}))
            lines += tables.side_by_side(f"{number}. {row.label}", row, standings)
    names = [name for name in TABLES if name.startswith(f"{paper}/")]
    scaled += filter(None, [_defaults(names, results)])
    return "\n".join([tables.lines(tables.HEAD, lines), *(["", *scaled] if scaled else [])])


def _csv(results: Results) -> str:
    """Every arm of every row that was trained; arms of the league at their own best rate."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    head = ["table", "row", "scaled down", "arm", "published", "score", "n", "mean", "sd"]
    for name in BASELINES:
        head += [f"gain over {name}", "low", "high"]
    head += ["seeds at the goal"]
    writer.writerow([*head, "verdict", "commands"])
    for name, table in TABLES.items():
        if table.trials:
            shown = league.standings(name, results)
        else:
            every = _rows(name, results)
            shown = [one for row in every for one in reached(row, results).values()]
        writer.writerows(_line(one, results) for one in shown)
    return file.getvalue()


def _line(standing: Standing, results: Results) -> Iterator[object]:
    """A line of the CSV: what the arm is, its numbers, and the commands of its runs."""
    row, ours, digits = standing.row, standing.result, standing.result.score.digits + 1
    yield from (row.table, row.label, "yes" if row.is_small else "", ours.arm)
    yield "" if row.is_small else row.published.get(ours.arm, "")
    yield from (ours.score.label, len(ours.reached), round(ours.mean, digits))
    yield "" if ours.sd is None else round(ours.sd, digits)
    for one in (standing.gain, standing.positions, standing.structure):
        numbers = (one.mean, one.low, one.high) if one else (None, None, None)
        yield from ("" if number is None else round(number, digits) for number in numbers)
    goal = ours.score.goal
    yield "" if goal is None else sum(value >= goal for value in ours.reached.values())
    yield tables.verdict(standing.gain, standing.structure, ours.score.higher)
    lines = [line for line in results.of(row) if line in ours.runs.values()]
    said = (f"{line.command} ({', '.join(_about(line))})" for line in lines)
    yield "; ".join(dict.fromkeys(said))


def _about(line: Line) -> Iterator[str]:
    yield f"jax {line.jax}"
    if line.remark:
        yield line.remark
