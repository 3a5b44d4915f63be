"""Tables of the results inside of hand-written pages, each between two markers:

    <!-- table: attention -->
    …
    <!-- end -->

`table: PAPER` has what a paper printed and what we trained of it, `table: PAPER/TABLE` a table
without published numbers. Tables that are closed, which today's code doesn't train, are shown as
they stand in results/closed/NAME.md, from its line --- on.
"""

from __future__ import annotations

import functools
import pathlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from launch import league
from launch.rows import rows
from launch.runs import OURS, Line, Results, ours
from mimetic_jax.base.errors import unknown
from mimetic_jax.train.report import DEFAULT, ArmResult, markdown, trimmed
from papers import TABLES
from papers.record import Row, Table

FOLDER, CLOSED = pathlib.Path("docs"), pathlib.Path("results/closed")
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

GRIDS = {"large": ("questions/large", "questions/large_long")}
"""Tables that are shown as one, in which each entrant has a line and each task a column."""

_PUBLISHED = ("attention", "structured", "mlp")
"""The papers whose numbers stand on a page."""

_STARTS = {"timm": "timm's N(0, .02²)", "torch": "PyTorch's", "flax": "Flax's"}
"""What the default is, by the `base` of a model."""

HEAD = ("row", "arm", "published", *OURS)
"""Columns of rows, published and ours side by side."""


def table(rows: Sequence[Row], results: Results) -> str:
    """Published and ours of some rows of a table, with every arm that was trained."""
    lines = list[Sequence[str]]()
    for row in rows:
        name = f"{row.number}. {row.label}" + ", scaled down" * row.is_small
        lines += side_by_side(name, row, results.reached(row), every=True)
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
    """The pages that have tables, with those of today's results."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
    return {path: filled(text, results) for path, text in texts.items() if BLOCK.search(text)}


def filled(page: str, results: Results) -> str:
    """A page with the tables of some results between its markers."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{_block(found[2], results)}\n\n{found[3]}", page)


def _block(name: str, results: Results) -> str:
    if (closed := CLOSED / f"{name}.md").is_file():
        return closed.read_text(encoding="utf-8").partition("\n---\n")[2].strip()
    if name in GRIDS:
        shown = league.grid(GRIDS[name], results, intervals=True)
        return f"{shown}\n\n{_defaults(GRIDS[name], results)}"
    if name in _PUBLISHED:
        return _published(name, results)
    if name not in TABLES:
        raise unknown("table", name, [*TABLES, *_PUBLISHED, *GRIDS])
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
