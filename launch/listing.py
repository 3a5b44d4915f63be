"""What there is to reproduce, and what the results have of it, line by line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from launch import tables
from launch.results import ResultStore
from launch.runner import load
from papers import FIGURES, PAPERS, TABLES, rows_of
from papers.record import Row


def tables_and_figures(results: ResultStore) -> Iterator[str]:
    """Yield a line for each table and figure, with what the results have of it."""
    for name, paper in PAPERS.items():
        yield f"{name}: {(paper.__doc__ or '').strip().splitlines()[0]}"
        for key, own in paper.TABLES.items():
            full, small = rows_of(f"{name}/{key}"), rows_of(f"{name}/{key}", small=True)
            done = sum(bool(_state(row, results)) for row in (*full, *small))
            about = [f"{len(full)} row{'s' if len(full) > 1 else ''}"]
            if small:
                about.append("--small")
            if done:
                about.append(f"{done} with runs")
            yield f"  {key}: {own.title} ({', '.join(about)})"
        for key, figure in FIGURES.items():
            if key.startswith(f"{name}/"):
                needs = f" (needs {figure.needs})" if figure.needs else ""
                yield f"  {key.partition('/')[2]}: {figure.title}{needs}"
        yield ""


def rows(name: str, results: ResultStore) -> Iterator[str]:
    """Yield a line for each row: its published numbers, and what the results have of it."""
    own = TABLES[name]
    hardware = f"; {own.hardware}" if own.hardware else ""
    yield f"{name}: {own.title} ({tables.scores(own)}{hardware})"
    small = {row.place.number: _state(row, results) for row in rows_of(name, small=True)}
    for row in rows_of(name):
        published = (*row.published.items(), *row.others.items())
        scaled = small.get(number := row.place.number, "").removeprefix("done, ")
        parts = (
            ", ".join(f"{arm} {value:g}" for arm, value in published) or "no number",
            _state(row, results) or (f"needs {row.needs}" if row.needs else "not run"),
            f"small: {scaled}" if scaled else "",
            f"doubt: {row.doubt}" if row.doubt else "",
        )
        yield f"  {number:>2} {row.label}: {'; '.join(filter(None, parts))}"
    sizes: dict[str, list[str]] = defaultdict(list)
    for row in rows_of(name, small=True):
        sizes[row.small.says if row.small else ""].append(str(row.place.number))
    for says, numbers in sizes.items():
        yield f"  --small, row{'s' * (len(numbers) > 1)} {', '.join(numbers)}: {says}"
    for row in rows_of(name, small=True):
        if not row.is_untrained:
            yield f"  --small, row {row.place.number} has {'; '.join(_kept(name, row))}"
    if own.doubt:
        yield f"  doubt: {own.doubt}"


def _kept(name: str, small: Row) -> Iterator[str]:
    """Yield the ratios that a row should keep, published and scaled down, and why one differs."""
    assert small.small is not None
    published, scaled = (load(row) for row in (rows_of(name)[small.place.number - 1], small))
    for ratio in small.small.keeps:
        yield f"{ratio.name} {ratio.of(published):.3g} published, {ratio.of(scaled):.3g} here"
    if small.small.apart:
        yield small.small.apart


def _state(row: Row, results: ResultStore) -> str:
    """Say how many runs of a row have records, for its table's seeds; empty for none."""
    found = results.of(row)
    if row.ladder or row.is_untrained:  # how many trials an arm takes isn't known
        return f"{len(found.records)} runs" if found.records else ""
    seeds = [set(found.runs(arm)) for arm in row.arms]
    wanted = len(row.seeds)
    done, every = sum(min(wanted, len(own)) for own in seeds), len(seeds) * wanted
    if done == every:
        return f"done, {len(set.intersection(*seeds))} seeds"
    return f"{done} of {every} runs" if done else ""
