"""Published and ours, side by side: a Markdown table with the differences and a verdict."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from launch.marks import marks, reached
from launch.registry import Entry, Spec
from launch.results import Results
from mimetic_jax.train.report import BASELINES, DEFAULT, ArmResult, markdown
from mimetic_jax.train.statistics import ENOUGH, Difference

HEAD = (
    *("row", "arm", "published", "ours ± sd (n)"),
    *(f"Δ {name} [95 % CI]" for name in BASELINES),
    "verdict",
)


def table(
    entries: Sequence[Entry], results: Results, *, full: bool = True, only: Collection[str] = ()
) -> str:
    """Published and ours of some rows; columns that would be empty are left out.

    An arm that rows of one comparison share is shown with the first. A published score stands
    behind that of the default, and beside no scaled row.

    Args:
        entries: rows, in this order.
        results: the lines of finished runs.
        full: whether to show what is published, and arms that aren't trained.
        only: arms to show; all unless given.
    """
    shown: list[Sequence[str]] = []
    seen = set[tuple[str, Spec, str]]()
    several = len({entry.table for entry in entries}) > 1
    for entry in entries:
        row, found = entry.row, reached(entry, results)
        label = f"{entry.table}, {row.label}" if several else f"{entry.number}. {row.label}"
        label += ", scaled down" * entry.spec.small
        beside = full and not entry.spec.small
        published = dict(row.published) if beside else {}
        if row.best and published:  # one score, of the best of some arms
            shown.append((label, f"best of {len(published)}", printed(max(published.values()))))
            published.clear()
        default = f"{printed(published[DEFAULT])} → " if DEFAULT in published else ""
        for arm in dict.fromkeys((*published, *(marks(entry, results) if full else found))):
            if (entry.table, entry.spec, arm) in seen or (only and arm not in only):
                continue
            seen.add((entry.table, entry.spec, arm))
            score = printed(published[arm]) if arm in published else ""
            text = default + score if score and arm != DEFAULT else score
            shown.append((label, arm, text, *cells(found, arm)))
        if beside:
            shown += [(label, name, printed(score)) for name, score in row.others.items()]
    stale = {
        (line.config, line.arm, line.seed, line.digest)
        for entry in (entries if full else ())
        for line in results.of(entry.spec)
        if (mark := marks(entry, results).get(line.arm)) and mark.result != line.digest
    }
    note = f"\n\n{len(stale)} runs of another configuration are not counted." if stale else ""
    return lines(HEAD, shown) + note


def lines(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A Markdown table of lines, which may end early; columns without a cell are left out."""
    columns = itertools.zip_longest(head, *cells, fillvalue="")
    return markdown({name: cells for name, *cells in columns if any(cells)})


def cells(found: Mapping[str, ArmResult], arm: str) -> tuple[str, ...]:
    """An arm's score, its differences, and what they say; none if it isn't trained."""
    if arm not in found:
        return ()
    ours = found[arm]
    scale, structure = differences(ours, found)
    form = f".{ours.score.digits}f"
    return (
        f"{ours.shown()} ({len(ours.reached)})",
        *(f"{one:{form}}" if one else "" for one in (scale, structure)),
        verdict(scale, structure, ours.score.higher),
    )


def printed(score: float) -> str:
    """A published score with its digits, at least two.

    >>> printed(91.4), printed(1.233)
    ('91.40', '1.233')
    """
    return f"{score:.{max(2, len(str(score).partition('.')[2]))}f}"


def differences(
    ours: ArmResult, found: Mapping[str, ArmResult]
) -> tuple[Difference | None, Difference | None]:
    """An arm's differences to the default, and to noise of the same norms.

    Args:
        ours: the arm.
        found: all arms of its comparison.
    """
    default, noise = found.get(DEFAULT), found.get(ours.control)
    return ours.versus(default) if default else None, ours.versus(noise) if noise else None


def verdict(scale: Difference | None, structure: Difference | None, higher: bool) -> str:
    """What the differences of an arm say of it, in a word.

    Args:
        scale: to the default.
        structure: to noise of the same norms; None where no such noise was trained.
        higher: whether more is better.

    >>> above, below = Difference(1.5, 1, 2, 3), Difference(-1.5, -2, -1, 3)
    >>> around = Difference(0, -1, 1, 3)
    >>> verdict(above, above, higher=True), verdict(above, around, higher=True)
    ('structure', 'scale')
    >>> verdict(above, below, higher=True), verdict(around, above, higher=True)
    ('worse', 'undecided')
    >>> verdict(above, None, higher=True), verdict(None, above, higher=False)
    ('better', 'worse')
    >>> verdict(Difference(1, 0.5, 2, 2), None, higher=True), verdict(None, None, higher=True)
    ('undecided', '')
    """
    known = [one for one in (scale, structure) if one]
    if not known:
        return ""
    if min(one.n for one in known) < ENOUGH:
        return "undecided"
    sides = [one.side(higher) for one in known]
    if min(sides) < 0:
        return "worse"
    if scale is None or structure is None:
        return "better" if sides[0] > 0 else "undecided"
    if scale.side(higher) == 0:
        return "undecided"
    return "structure" if structure.side(higher) > 0 else "scale"
