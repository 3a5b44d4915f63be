"""Tables of the results inside of hand-written pages, each between two markers:

    <!-- table: attention/table1 -->
    …
    <!-- end -->

`table: PAPER/TABLE` has the rows that were trained, `table: league` the league, and
`table: verdicts` every comparison of a paper's method with the default and with its own noise.
"""

from __future__ import annotations

import functools
import pathlib
import re
import textwrap
from collections.abc import Iterator, Sequence

from launch import league, tables
from launch.marks import marks_of_lines, reached
from launch.registry import Entry, entries, scaled_entries
from launch.results import Results
from mimetic_jax.base.errors import unknown
from mimetic_jax.train.report import DEFAULT, markdown
from papers import TABLES

FOLDER = pathlib.Path("docs")
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

_METHODS = ("mimetic", "strong", "vision", "impulse", "mean_shift", "conv")
"""The papers' own initializations, as configurations name their arms."""


def pages(results: Results) -> dict[pathlib.Path, str]:
    """The pages that have tables, with those of today's results."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
    return {path: filled(text, results) for path, text in texts.items() if BLOCK.search(text)}


def filled(page: str, results: Results) -> str:
    """A page with the tables of some results between its markers.

    Raises:
        InputError: a marker names no table.
    """
    return BLOCK.sub(lambda found: f"{found[1]}\n{_block(found[2], results)}\n{found[3]}", page)


@functools.cache  # the league is on two pages
def _block(name: str, results: Results) -> str:
    if name == "league":
        return league.league_table(results) + "\n"
    if name == "verdicts":
        return _verdicts(results) + "\n"
    if name not in TABLES:
        raise unknown("table", name, [*TABLES, "league", "verdicts"])
    return "\n".join(_table(name, results)) or "No row has been trained.\n"


def _table(name: str, results: Results) -> Iterator[str]:
    """A table's rows with runs, of the paper's size and scaled down, and where they were made."""
    table = TABLES[name]
    full, small = (
        [entry for entry in every if results.of(entry.spec)]
        for every in (entries(name), scaled_entries(name))
    )
    if not (full or small):
        return
    facts = [f"{table.title[0].upper()}{table.title[1:]}.", f"Doubt: {table.doubt}."]
    yield _wrapped(" ".join(facts if table.doubt else facts[:1]))
    if table.trials:
        yield league.task_table(name, results) + "\n"
        yield _origins(league.chosen(entries(name), results), results)
        return
    for rows in filter(None, (full, small)):
        if rows is small:
            scales = (entry.row.small or table.small for entry in small)
            says = dict.fromkeys(scale.says for scale in scales if scale)
            yield _wrapped(f"Scaled down ({'; '.join(says)}):")
        yield tables.table(rows, results, marks_of_lines(rows, results), lacking=False) + "\n"
        if doubts := [f"- {n.number}. {n.row.label}: {n.row.doubt}" for n in rows if n.row.doubt]:
            yield "\n".join(doubts) + "\n"
        yield _origins(rows, results)


def _origins(rows: Sequence[Entry], results: Results) -> str:
    """Where the runs of some rows were made."""
    lines = [line for spec in dict.fromkeys(e.spec for e in rows) for line in results.of(spec)]
    made = dict.fromkeys(
        f"`{line.command}` on {line.devices} x {line.device_kind}, "
        f"jax {line.jax or 'unknown'}, commit {(line.commit or 'unknown')[:7]}"
        for line in lines
    )
    return _wrapped(f"Runs: {'; '.join(made)}.")


def _verdicts(results: Results) -> str:
    columns: dict[str, list[str]] = {
        name: []
        for name in ("row", "method", "n", "Δ default [95 % CI]", "Δ noise [95 % CI]", "what pays")
    }
    rows = [
        entry
        for name, table in TABLES.items()
        if not table.trials
        for entry in (*entries(name), *scaled_entries(name))
    ]
    marks = marks_of_lines(rows, results)
    for entry in rows:
        found = reached(entry.spec, results, marks.get(entry.spec, {}))
        for ours in (found[name] for name in _METHODS if name in found and name in entry.init):
            if ours.control not in found or DEFAULT not in found:
                continue
            scale, structure = ours.versus(found[DEFAULT]), ours.versus(found[ours.control])
            if scale and structure:
                form = f".{ours.score.digits}f"
                row = f"{entry.table} {entry.number}. {entry.row.label}"
                cells = (
                    row + ", scaled" * entry.spec.small,
                    ours.arm,
                    ", ".join(dict.fromkeys((str(scale.n), str(structure.n)))),
                    *(f"{one:{form}}" for one in (scale, structure)),
                    tables.what_pays(scale, structure, ours.score.higher),
                )
                for column, cell in zip(columns.values(), cells, strict=True):
                    column.append(cell)
    return markdown(columns)


def _wrapped(text: str) -> str:
    """A paragraph of a document."""
    text = " ".join(text.split())
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"
