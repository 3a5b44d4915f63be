"""Pages of docs/ that are made of the registry and the results: no score in them is typed by hand.

results.md and faq.md are papers/findings.md and papers/faq.md with their numbers filled in. A paper
has a page results_NAME.md: papers/NAME.md, if there is one, then its tables as far as they were
trained, and the records of its config files. recipes.md has the records of all other config files.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence

from launch import league, recipes, tables
from launch.findings import findings
from launch.marks import marks_of_lines
from launch.recipes import wrapped
from launch.registry import Entry, entries, scaled_entries
from launch.results import Results
from papers import PAPERS, TABLES
from papers.league import ENTRANTS
from papers.record import Table

FOLDER = pathlib.Path("docs")
_SOURCES = pathlib.Path("papers")
_FILLED = {"results.md": "findings.md", "faq.md": "faq.md"}
"""Pages of docs/ by their name, with their sources."""

_LEAGUE = """{table}

The gain over the default of each initialization on each task: percent, or bits per character, where
less is better. In parentheses: over noise of its norms. **Bold** is what holds after Holm's
correction for all initializations of a task. Each arm trains at its own best learning rate of those
that it tried, chosen at other seeds than those that are compared
([what each is, and every task](results_league.md)).

![Gain over the default of every initialization, with 95 % intervals](league_forest.png)

Dots are means over seeds, lines 95 % intervals, the better to the right; blue is better than the
default, red worse, hollow not told apart."""
_NO_LEAGUE = (
    """No task of the league is trained yet: `python launch/reproduce.py league` trains it."""
)

_ROWS = """Rows that were trained, with the published numbers beside ours;
[how to read the tables](results.md#how-to-read-the-tables). `python launch/reproduce.py` lists
every row of the paper, trained or not, with its published numbers and its cost."""
_NO_ROWS = """No row of it has been trained yet: `python launch/reproduce.py` lists them, with their
published numbers and their cost."""


def pages(results: Results) -> dict[pathlib.Path, str]:
    """All documents that are made of the registry and the results, by path."""
    records = recipes.records()
    filled = {FOLDER / name: _filled(results, source) for name, source in _FILLED.items()}
    of_papers = {
        FOLDER / recipes.page_of(name): "\n".join(_paper(name, results, records)) for name in PAPERS
    }
    return filled | of_papers | {FOLDER / recipes.OTHERS: recipes.render(records)}


def _filled(results: Results, source: str) -> str:
    """A page with its numbers, with the league and what its entrants are where it says so."""
    text = findings(results, _SOURCES / source)
    if "{league}" in text:
        ran = bool(league.league(results))
        shown = _LEAGUE.format(table=league.league_table(results)) if ran else _NO_LEAGUE
        text = text.replace("{league}", shown)
    entrants = "\n".join(f"- `{arm}`: {text}" for arm, text in ENTRANTS.items())
    return text.replace("{entrants}", entrants)


def _paper(name: str, results: Results, records: Sequence[recipes.Record]) -> Iterator[str]:
    prose = f"{name}.md"
    title, _, about = (PAPERS[name].__doc__ or name).strip().partition("\n")
    written = (_SOURCES / prose).exists()
    yield _filled(results, prose) if written else f"# {title.rstrip('.')}\n{about}\n"
    shown = [
        part
        for key, table in TABLES.items()
        if key.startswith(f"{name}/")
        for part in _table(key, table, results)
    ]
    yield "## Tables\n"
    yield wrapped(_ROWS if shown else _NO_ROWS)
    yield from shown
    yield from recipes.of_paper(name, records)


def _table(name: str, table: Table, results: Results) -> Iterator[str]:
    """A table's rows with runs, of the paper's size and scaled down; nothing if it has none."""
    full, small = (
        [entry for entry in every if results.of(entry.spec)]
        for every in (entries(name), scaled_entries(name))
    )
    if table.trials:
        full = league.chosen(full, results)
    if not (full or small):
        return
    yield f"### {name}: {table.title}\n"
    scores = " or ".join(dict.fromkeys(row.score or table.score for row in table.rows))
    facts = [f"Score: {scores}, {'higher' if table.higher else 'lower'} is better."]
    facts += [f"Section {table.section}."] if table.section else []
    facts += [f"Secondary source: {table.source}."] if table.source else []
    facts += [f"Hardware: {table.hardware}."] if table.hardware else []
    facts += [f"Doubt: {table.doubt}."] if table.doubt else []
    yield wrapped(" ".join(facts))
    if table.trials:
        yield league.task_table(name, results) + "\n"
        yield _origins(full, results)
        return
    for rows in filter(None, (full, small)):
        if rows is small:
            scales = (entry.row.small or table.small for entry in small)
            says = dict.fromkeys(scale.says for scale in scales if scale)
            yield wrapped(f"Scaled down ({'; '.join(says)}):")
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
    return wrapped(f"Runs: {'; '.join(made)}.")
