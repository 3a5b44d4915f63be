"""The whole registry on a page: every table and row, published numbers, and state."""

from __future__ import annotations

from collections.abc import Iterator

from launch.registry import SEEDS, Entry, entries
from launch.results import Results
from papers import FIGURES, PAPERS, TABLES
from papers.record import Table


def listing(results: Results) -> Iterator[str]:
    """A line for each row, with what the results have of it."""
    for name, paper in PAPERS.items():
        yield f"{name}: {(paper.__doc__ or '').strip().splitlines()[0]}"
        for key, table in paper.TABLES.items():
            yield from _table(f"{name}/{key}", table, results)
        for key, figure in FIGURES.items():
            if key.startswith(f"{name}/"):
                needs = f" (needs {figure.needs})" * bool(figure.needs)
                yield f"  {key.partition('/')[2]}: {figure.title}{needs}"
        yield ""


def _table(name: str, table: Table, results: Results) -> Iterator[str]:
    scores = " or ".join(dict.fromkeys(row.score or table.score for row in table.rows))
    small = entries(name, small=True)
    option = "; --small" * bool(small)
    hardware = f"; {table.hardware}" * bool(table.hardware)
    yield f"  {name.partition('/')[2]}: {table.title} ({scores}{option}{hardware})"
    states = {entry.number: _state(entry, results) for entry in small}
    for entry in entries(name):
        published = (*entry.row.published.items(), *entry.row.others.items())
        numbers = ", ".join(f"{arm} {value:g}" for arm, value in published)
        state, scaled = _state(entry, results), states.get(entry.number, "")
        parts = (
            numbers or "no number",
            state or (f"needs {entry.row.needs}" if entry.row.needs else "not run"),
            f"small: {scaled.removeprefix('done, ')}" if scaled else "",
        )
        yield f"    {entry.number:>2} {entry.row.label}: {'; '.join(filter(None, parts))}"


def _state(entry: Entry, results: Results) -> str:
    """How many runs of a row have their lines, for as many seeds as a claim takes; empty for none.

    Lines of an earlier configuration count too: telling them apart takes longer than the list.
    """
    if TABLES[entry.table].trials:  # arms choose among the rows: no row has all
        runs = len(results.of(entry.spec))
        return f"{runs} runs" if runs else ""
    lines = results.of(entry.spec)
    seeds = [{line.seed for line in lines if line.arm == arm} for arm in entry.init]
    done, every = sum(min(len(SEEDS), len(of)) for of in seeds), len(seeds) * len(SEEDS)
    if done == every:
        return f"done, {len(set.intersection(*seeds))} seeds"
    return f"{done} of {every} runs" if done else ""
