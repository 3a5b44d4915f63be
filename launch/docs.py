"""docs/results.md, the registry and the results as one document, and docs/recall.md.

No score in them is typed by hand.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence

from launch import tables
from launch.findings import findings
from launch.marks import marks_of_lines
from launch.recipes import read, wrapped
from launch.registry import Entry, entries, scaled_entries
from launch.results import Results
from papers import PAPERS, TABLES
from papers.record import Table

PATH = pathlib.Path("docs/results.md")

_RECALL = pathlib.Path("recall.md")

_TABLES = """## How to read the tables

Below is every table of results of the papers, with our runs beside the published numbers (table 6
of the structured paper lists the sizes of its data sets alone). This document is
written by `python launch/reproduce.py --docs` from `papers/` and `results/*.jsonl`; each line there
has the command, commit and device of one finished run.

A row's arms share seeds, data order and every parameter that their schemes don't write. *ours* is
the mean over seeds ± standard deviation, with the number of seeds; intervals are Student's t over
seed by seed differences. A verdict takes at least three seeds. Rows without runs stay, with
their published numbers. Rows marked *scaled down* are too small to be compared with anything
published: they show what one CPU can show.

*norm_matched* is noise with the norms of one method; where a table compares several,
`norm_matched_METHOD` is that of another. In the tables, differences are to `norm_matched`; the
first page compares each method with its own noise. *P(better)* is how often a run of one arm beats
a run of the other, over all pairs of runs, ties counting half, with a bootstrap interval.
"""


def pages(results: Results) -> dict[pathlib.Path, str]:
    """All documents that are made of the results, by path."""
    return {
        PATH: render(results),
        PATH.parent / _RECALL: findings(results, pathlib.Path("papers") / _RECALL),
    }


def render(results: Results) -> str:
    """docs/results.md."""
    parts = [findings(results), _TABLES]
    for name, paper in PAPERS.items():
        title, *_ = (paper.__doc__ or name).strip().splitlines()
        parts.append(f"## {title.rstrip('.')}\n")
        for key, table in TABLES.items():
            if key.startswith(f"{name}/"):
                parts += _table(key, table, results)
    return "\n".join(parts)


def _table(name: str, table: Table, results: Results) -> Iterator[str]:
    yield f"### {name}: {table.title}\n"
    scores = " or ".join(dict.fromkeys(row.score or table.score for row in table.rows))
    facts = [f"Score: {scores}, {'higher' if table.higher else 'lower'} is better."]
    facts += [f"Section {table.section}."] if table.section else []
    facts += [f"Secondary source: {table.source}."] if table.source else []
    facts += [f"Hardware: {table.hardware}."] if table.hardware else []
    facts += [f"Doubt: {table.doubt}."] if table.doubt else []
    yield wrapped(" ".join(facts))
    full = entries(name)
    yield tables.table(full, results, marks_of_lines(full, results)) + "\n"
    doubts = [f"- {n.number}. {n.row.label}: {n.row.doubt}" for n in full if n.row.doubt]
    doubts += [f"- {n.number}. {n.row.label} needs {n.row.needs}" for n in full if n.row.needs]
    if doubts:
        yield "\n".join(doubts) + "\n"
    if ran := [entry for entry in scaled_entries(name) if results.of(entry.spec)]:
        says = dict.fromkeys(small.says for n in ran if (small := n.row.small or table.small))
        yield wrapped(f"Scaled down ({'; '.join(says)}):")
        yield tables.table(ran, results, marks_of_lines(ran, results)) + "\n"
        yield _origins(ran, results)
    if origins := _origins(full, results):
        yield origins
    files = dict.fromkeys(entry.spec.config for entry in full if tables.is_published(entry))
    for file in files:
        if departures := read(pathlib.Path(file))["Differs from the paper"]:
            yield wrapped(f"`{file}` differs from the paper: {departures}")


def _origins(rows: Sequence[Entry], results: Results) -> str:
    """Where the runs of some rows were made."""
    lines = [line for spec in dict.fromkeys(e.spec for e in rows) for line in results.of(spec)]
    made = dict.fromkeys(
        f"`{line.command}` on {line.devices} x {line.device_kind}, "
        f"jax {line.jax or 'unknown'}, commit {(line.commit or 'unknown')[:7]}"
        for line in lines
    )
    return wrapped(f"Runs: {'; '.join(made)}.") if made else ""
