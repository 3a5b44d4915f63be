"""The whole registry on a page: every table and row, published numbers, state and cost."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from launch.cost import SHARE, Costs
from launch.registry import SEEDS, Entry, entries
from launch.results import Results
from papers import PAPERS
from papers.record import Table


def listing(results: Results, workdir: pathlib.Path, costs: Costs, speed: float) -> Iterator[str]:
    """A line for each row.

    Args:
        results: that say how many seeds are done.
        workdir: where runs may be under way.
        costs: of rows.
        speed: of this device, in FLOP/s of a matrix product.
    """
    for name, paper in PAPERS.items():
        yield f"{name}: {(paper.__doc__ or '').strip().splitlines()[0]}"
        for key, table in paper.TABLES.items():
            yield from _table(f"{name}/{key}", table, results, workdir, costs, speed)
        for key, figure in paper.FIGURES.items():
            yield f"  {key}: {figure.title}" + (f" (needs {figure.needs})" if figure.needs else "")
        yield ""


def _table(
    name: str, table: Table, results: Results, workdir: pathlib.Path, costs: Costs, speed: float
) -> Iterator[str]:
    scaled = "; --small" * bool(table.small)
    scores = " or ".join(dict.fromkeys(row.score or table.score for row in table.rows))
    yield f"  {name.partition('/')[2]}: {table.title} ({scores}{scaled})"
    for entry in entries(name):
        numbers = ", ".join(f"{arm} {value:g}" for arm, value in entry.row.published.items())
        parts = (
            numbers or "no number",
            _state(entry, results, workdir),
            _cost(entry, costs, speed),
        )
        yield f"    {entry.number:>2} {entry.row.label}: {'; '.join(filter(None, parts))}"


def _state(entry: Entry, results: Results, workdir: pathlib.Path) -> str:
    if entry.row.needs:
        return f"needs {entry.row.needs}"
    if seeds := results.seeds(entry.spec, entry.row.published or entry.init):
        return f"done, {seeds} seed{'s' * (seeds > 1)}"
    started = (workdir / entry.spec.folder / "runs").exists() or results.of(entry.spec)
    return "begun" if started else "not run"


def _cost(entry: Entry, costs: Costs, speed: float) -> str:
    flops = costs.seed(entry.spec, entry.init)
    if flops is None:
        return ""
    every = flops * len(SEEDS)
    return f"{every:.1e} FLOPs, {hours(every / (SHARE * speed))} here"


def hours(seconds: float) -> str:
    """A duration in a unit that fits.

    >>> hours(90), hours(5400), hours(9e6)
    ('2 min', '1.5 h', '104 days')
    """
    if seconds < 3600:
        return f"{max(1, round(seconds / 60))} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:,.0f} days"
