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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from launch import league
from launch.rows import rows
from launch.runs import OURS, Line, Results, ours
from mimetic_jax.base.errors import unknown
from mimetic_jax.train.report import BASELINES, DEFAULT, ArmResult, markdown, trimmed
from papers import TABLES, today
from papers.league import LONG
from papers.record import Row, Table

FOLDER = pathlib.Path("docs")
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

GROUPS = {
    "evidence": tuple(f"evidence/{table}" for table in ("demo", "ptb", "images", "tokens")),
    "transformers": ("recall/attention", "recall/positions", "recall/induction"),
}
"""Tables that are shown as one: our own questions, and transformers that copy."""

GRIDS = {
    "league": tuple(name for name in TABLES if name.startswith("league/") and name not in LONG),
    **{name: tuple(f"today/{task}" for task in tasks) for name, tasks in today.GRIDS.items()},
    "units": ("why/units", "why/units_added"),
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


HEAD = ("row", "arm", "published", *OURS)
"""Columns of rows, published and ours side by side."""


def table(rows: Sequence[Row], results: Results, only: Collection[str] = ()) -> str:
    """Published and ours of some rows, with every arm that was trained, or some of them only.

    Rows have their number, those of several tables the name of theirs.
    """
    several, lines = len({row.table for row in rows}) > 1, list[Sequence[str]]()
    for row in rows:
        name = f"{row.table}, {row.label}" if several else f"{row.number}. {row.label}"
        name += ", scaled down" * row.is_small
        found = {arm: x for arm, x in results.reached(row).items() if not only or arm in only}
        lines += side_by_side(name, row, found, every=True)
    return markdown(trimmed(HEAD, lines))


def side_by_side(
    name: str, row: Row, found: Mapping[str, ArmResult], *, every: bool = False
) -> Iterator[Sequence[str]]:
    """The lines of a row: its published scores after the default's, each with ours.

    With `every` the arms that have no published score follow.
    """
    scores = {arm: printed(score) for arm, score in row.published.items()}
    start = f"{scores.pop(DEFAULT)} → " if DEFAULT in scores and len(scores) > 1 else ""
    if row.best:  # one score, of the best of some arms
        yield name, f"best of {len(row.published)}", printed(max(row.published.values()))
    elif found:
        for arm, text in scores.items():
            yield name, arm, start + text, *ours(found.get(arm))
    elif scores:
        yield name, ", ".join(scores), start + ", ".join(scores.values())
    if every:
        for arm, one in found.items():
            if row.best or arm not in scores:
                yield name, arm, "", *ours(one)
    for other, score in row.others.items():
        yield name, other, printed(score)


def printed(score: float) -> str:
    """A published score with its digits, at least two.

    >>> printed(91.4), printed(1.233)
    ('91.40', '1.233')
    """
    return f"{score:.{max(2, len(str(score).partition('.')[2]))}f}"


def pages(results: Results) -> dict[pathlib.Path, str]:
    """The pages that have tables, with those of today's results, and the CSV beside them."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
    found = {path: filled(text, results) for path, text in texts.items() if BLOCK.search(text)}
    return found | {FOLDER / "results.csv": _csv(results)}


def filled(page: str, results: Results) -> str:
    """A page with the tables of some results between its markers."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{_block(found[2], results)}\n\n{found[3]}", page)


def _block(name: str, results: Results) -> str:
    if name in GRIDS:
        intervals, most = name != _NARROW, 8 if name == "league" else None
        shown = league.grid(GRIDS[name], results, intervals=intervals, most=most)
        return f"{shown}\n\n{_defaults(GRIDS[name], results)}"
    if name in GROUPS:
        every = [row for of in GROUPS[name] for row in _rows(of, results)]
        return f"{table(every, results, _METHODS)}\n\n{_defaults(GROUPS[name], results)}"
    if name in _PUBLISHED:
        return _published(name, results)
    if name not in TABLES:
        raise unknown("table", name, [*TABLES, *_PUBLISHED, *GRIDS, *GROUPS])
    if TABLES[name].trials:
        shown = league.task_table(name, results)
    else:
        shown = table(_rows(name, results), results)
    title = f"{TABLES[name].title[0].upper()}{TABLES[name].title[1:]} ({TABLES[name].score})."
    scales = _scales(_rows(name, results), TABLES[name])
    if scales and name.partition("/")[0] in _PUBLISHED:
        title += f" Ours are scaled down: {scales}."
    return f"{_filled(f'{title} {_defaults([name], results)}')}\n\n{shown}"


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _defaults(names: Sequence[str], results: Results) -> str:
    """Which initialization the default arm has, in tables of which something was trained."""
    tables_of: dict[str, list[str]] = {}
    for name in names:
        for row in _rows(name, results):
            if not (found := results.reached(row)):
                continue
            shown = found.get(DEFAULT) or next(iter(found.values()))
            *_, newest = shown.runs.values()
            assert isinstance(newest, Line)
            base = _STARTS.get(newest.base)
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
        trained: dict[int, tuple[Row, Mapping[str, ArmResult]]] = {}
        for row in _rows(name, results):  # those as printed come first
            if found := results.reached(row):
                trained.setdefault(row.number, (row, found))
        if scales := _scales((row for row, _ in trained.values()), table):
            scaled.append(f"Ours of {name.partition('/')[2]} are scaled down: {scales}.")
        for number, row in enumerate(table.rows, 1):
            _, reached = trained.get(number, (None, {}))
            lines += side_by_side(f"{number}. {row.label}", row, reached)
    names = [name for name in TABLES if name.startswith(f"{paper}/")]
    scaled += filter(None, [_defaults(names, results)])
    return "\n".join([markdown(trimmed(HEAD, lines)), *(["", *scaled] if scaled else [])])


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
            shown = [(one.row, one.result) for one in league.standings(name, results)]
        else:
            every = _rows(name, results)
            shown = [(row, one) for row in every for one in results.reached(row).values()]
        writer.writerows(_line(row, one, results) for row, one in shown)
    return file.getvalue()


def _line(row: Row, found: ArmResult, results: Results) -> Iterator[object]:
    """A line of the CSV: what the arm is, its numbers, and the commands of its runs."""
    digits = found.score.digits + 1
    yield from (row.table, row.label, "yes" if row.is_small else "", found.arm)
    yield "" if row.is_small else row.published.get(found.arm, "")
    yield from (found.score.label, len(found.reached), round(found.mean, digits))
    yield "" if found.sd is None else round(found.sd, digits)
    for name in BASELINES:
        one = found.differences.get(name)
        numbers = (one.mean, one.low, one.high) if one else (None, None, None)
        yield from ("" if number is None else round(number, digits) for number in numbers)
    goal = found.score.goal
    yield "" if goal is None else sum(value >= goal for value in found.reached.values())
    yield found.verdict
    lines = [line for line in results.of(row) if line in found.runs.values()]
    remarks = ((line, f", {line.remark}" * bool(line.remark)) for line in lines)
    said = (f"{line.command} (jax {line.jax}{remark})" for line, remark in remarks)
    yield "; ".join(dict.fromkeys(said))
