"""Published and ours, side by side: a Markdown table with the differences and a verdict."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from launch.results import Line, Results, check_data
from mimetic_jax.train.controls import matched
from mimetic_jax.train.report import BASELINES, DEFAULT, ArmResult, differences, markdown
from mimetic_jax.train.statistics import ENOUGH, Difference
from papers.record import Row

NUMBERS = ("ours ± sd (n)", *(f"Δ {name} [95 % CI]" for name in BASELINES), "verdict")
HEAD = ("row", "arm", "published", *NUMBERS)


@dataclasses.dataclass(frozen=True)
class Standing:
    """What an arm of a row reached, and what it is compared with.

    Attributes:
        row: where it is compared.
        result: its runs there.
        gain: over the default; None for the default, and without shared seeds.
        positions: over the default with sin-cos positions, where the row has that arm.
        structure: over noise of its norms; None for an arm without such a control.
        edge: of an arm that chose its row, whether it didn't try both rows next to that one: its
            best may be beyond.
    """

    row: Row
    result: ArmResult
    gain: Difference | None = None
    positions: Difference | None = None
    structure: Difference | None = None
    edge: bool = False


def reached(row: Row, results: Results) -> dict[str, Standing]:
    """What each arm of a row reached, in its runs of the configuration that it had last.

    Raises:
        InputError: some were trained on other data.
    """
    lines = {arm: runs for arm in row.arms if (runs := results.runs(row, arm))}
    last = {arm: next(reversed(runs.values())) for arm, runs in lines.items()}
    control = matched(
        {arm: line.digest for arm, line in last.items()},
        {arm: line.control_of for arm, line in last.items()},
    )
    found = {
        arm: ArmResult(arm, runs, row.label, control.get(arm, "")) for arm, runs in lines.items()
    }

    check_data(row.key, (line for runs in lines.values() for line in runs.values()))
    standings = {}
    for arm, own in found.items():
        gain, positions, structure = map(differences(own, [*found.values()]).get, BASELINES)
        standings[arm] = Standing(row, own, gain, positions, structure)
    return standings


def newest(result: ArmResult) -> Line:
    """The line of the last seed of an arm."""
    *_, line = result.runs.values()
    assert isinstance(line, Line)
    return line


def table(rows: Sequence[Row], results: Results) -> str:
    """Published and ours of some rows, with every arm that was trained."""
    shown = [
        line
        for row in rows
        for line in side_by_side(label(row), row, reached(row, results), every=True)
    ]
    return lines(HEAD, shown)


def ours(
    rows: Sequence[Row], results: Results, only: Collection[str] = ()
) -> Iterator[Sequence[str]]:
    """The lines of what was trained of some rows, without what is published; of some arms only."""
    several = len({row.table for row in rows}) > 1
    for row in rows:
        for arm, standing in reached(row, results).items():
            if not only or arm in only:
                yield label(row, several), arm, "", *numbers(standing)


def label(row: Row, several: bool = False) -> str:
    """A row by its number, or among the rows of several tables by its table's name."""
    name = f"{row.table}, {row.label}" if several else f"{row.number}. {row.label}"
    return name + ", scaled down" * row.is_small


def side_by_side(
    name: str, row: Row, found: Mapping[str, Standing], *, every: bool = False
) -> Iterator[Sequence[str]]:
    """The lines of a row: its published scores after the default's, each with ours.

    Args:
        name: of the row.
        row: as published.
        found: what its arms reached.
        every: whether arms that have no published score follow.
    """
    scores = {arm: printed(score) for arm, score in row.published.items()}
    start = f"{scores.pop(DEFAULT)} → " if DEFAULT in scores and len(scores) > 1 else ""
    if row.best:  # one score, of the best of some arms
        yield name, f"best of {len(row.published)}", printed(max(row.published.values()))
    elif found:
        for arm, text in scores.items():
            yield name, arm, start + text, *numbers(found.get(arm))
    elif scores:
        yield name, ", ".join(scores), start + ", ".join(scores.values())
    if every:
        for arm, standing in found.items():
            if row.best or arm not in scores:
                yield name, arm, "", *numbers(standing)
    for other, score in row.others.items():
        yield name, other, printed(score)


def lines(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A Markdown table of lines, which may end early; columns without a cell are left out."""
    if not cells:
        return "no finished run yet"
    columns = itertools.zip_longest(head, *cells, fillvalue="")
    return markdown({name: cells for name, *cells in columns if any(cells)})


def numbers(standing: Standing | None) -> tuple[str, ...]:
    """An arm's score, its differences, and what they say; none if it isn't trained."""
    if standing is None:
        return ()
    result, form = standing.result, f".{standing.result.score.digits}f"
    differences = standing.gain, standing.positions, standing.structure
    return (
        f"{result.shown()} ({len(result.reached)})",
        *(f"{one:{form}}" if one else "" for one in differences),
        verdict(standing.gain, standing.structure, result.score.higher),
    )


def printed(score: float) -> str:
    """A published score with its digits, at least two.

    >>> printed(91.4), printed(1.233)
    ('91.40', '1.233')
    """
    return f"{score:.{max(2, len(str(score).partition('.')[2]))}f}"


def verdict(gain: Difference | None, over_noise: Difference | None, higher: bool) -> str:
    """What the differences of an arm say of it, in a few words.

    Args:
        gain: over the default.
        over_noise: over noise of the same norms; None where no such noise was trained.
        higher: whether more is better.

    >>> above, below = Difference(1.5, 1, 2, 3), Difference(-1.5, -2, -1, 3)
    >>> around = Difference(0, -1, 1, 3)
    >>> verdict(above, above, higher=True), verdict(above, around, higher=True)
    ('gain over noise', 'gain; structure not shown')
    >>> verdict(above, below, higher=True), verdict(around, above, higher=True)
    ('worse than its noise', 'undecided')
    >>> verdict(above, None, higher=True), verdict(None, above, higher=False)
    ('better', 'worse than its noise')
    >>> verdict(Difference(1, 0.5, 2, 2), None, higher=True), verdict(None, None, higher=True)
    ('undecided', '')
    """
    known = [one for one in (gain, over_noise) if one]
    if not known:
        return ""
    if min(one.n for one in known) < ENOUGH:
        return "undecided"
    side, structure = (one.side(higher) if one else None for one in (gain, over_noise))
    if side == -1:
        return "worse"
    if structure == -1:
        return "worse than its noise"
    if side is None or structure is None:
        return "better" if 1 in (side, structure) else "undecided"
    if side == 0:
        return "undecided"
    return "gain over noise" if structure else "gain; structure not shown"
