"""Published and ours, side by side: a Markdown table with the differences and a verdict."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence

from launch.marks import Marks, reached
from launch.registry import Entry
from launch.results import Results
from mimetic_jax.train.record import ACCURACY
from mimetic_jax.train.report import BASELINES, DEFAULT, ArmResult, further_columns, markdown
from mimetic_jax.train.statistics import ENOUGH, Difference, accuracy_difference

IMAGES = "†"
"""Marks an interval over test images, not over seeds."""


@dataclasses.dataclass(frozen=True)
class Shown:
    """A line of the table: an arm of a row, published or ours or both."""

    label: str
    arm: str
    published: float | None
    result: ArmResult | None

    @property
    def examples(self) -> int:
        """Test images on which all runs were tested."""
        return min((run.examples for run in self.result.runs.values()) if self.result else [0])


def table(entries: Sequence[Entry], results: Results, marks: Marks, *, full: bool = True) -> str:
    """Published and ours of some rows of one table.

    Rows of one comparison are shown together, below the controls that they share.

    Args:
        entries: rows, all full or all scaled down; of the latter nothing published is shown, and
            where nothing is published no column is kept for it.
        results: the lines of finished runs.
        marks: of each comparison's arms; lines of others are counted below the table.
        full: whether to show what has no run, and the steps to a goal and scores on other test
            sets.
    """
    columns: dict[str, list[str]] = {
        name: []
        for name in (
            *("row", "arm", "published", "ours ± sd (n)", "Δ published"),
            *(f"Δ {name} [95 % CI]" for name in BASELINES),
            "verdict",
        )
    }
    shown: list[ArmResult | None] = []
    for _, group in itertools.groupby(entries, key=lambda entry: entry.spec):
        for result, cells in _group(list(group), results, marks):
            if not (result or full):
                continue
            shown.append(result)
            for column, cell in zip(columns.values(), cells, strict=True):
                column.append(cell)
    if full:
        columns |= further_columns(shown)
    if not any(map(is_published, entries)):
        del columns["published"], columns["Δ published"]
    notes = []
    if any(IMAGES in cell for column in columns.values() for cell in column):
        notes.append(
            f"{IMAGES} one seed: the interval is a bootstrap over test images, for these networks."
        )
    old = sum(
        line.arm in marks[spec] and marks[spec][line.arm].result != line.digest
        for spec in dict.fromkeys(entry.spec for entry in entries)
        if spec in marks
        for line in results.of(spec)
    )
    if old:
        notes.append(f"{old} runs of another configuration are not counted.")
    return "\n".join([markdown(columns), *([""] if notes else []), *notes])


def lines(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A Markdown table of lines; those that end early go on with empty cells."""
    columns = itertools.zip_longest(head, *cells, fillvalue="")
    return markdown({name: column for name, *column in columns})


def is_published(entry: Entry) -> bool:
    """Whether there is a published number for it: for a row as printed, not for a scaled one."""
    return not entry.spec.small and bool(entry.row.published or entry.row.others)


def _group(
    entries: Sequence[Entry], results: Results, marks: Marks
) -> list[tuple[ArmResult | None, tuple[str, ...]]]:
    spec = entries[0].spec
    known = marks.get(spec, {})
    # What a group of arms holds is known where the configuration was read.
    arms = list(known or dict.fromkeys(arm for entry in entries for arm in entry.init))
    found = reached(spec, results, known)
    shown = [
        Shown(
            f"{entry.number}. {entry.row.label}",
            label,
            None if spec.small else entry.row.published.get(arm),
            result,
        )
        for entry in entries
        for label, arm, result in _lines(entry, arms, found)
    ]
    if not spec.small:
        shown += [
            Shown(f"{entry.number}. {entry.row.label}", name, value, None)
            for entry in entries
            for name, value in entry.row.others.items()
        ]
    printed = {arm for entry in entries for arm in (*entry.row.published, *entry.row.arms)}
    label = "controls" if len(entries) > 1 else shown[0].label if shown else entries[0].row.label
    shown += [Shown(label, arm, None, found.get(arm)) for arm in arms if arm not in printed]
    return [(line.result, _cells(line, found)) for line in shown]


def _lines(
    entry: Entry, arms: Collection[str], found: Mapping[str, ArmResult]
) -> list[tuple[str, str, ArmResult | None]]:
    """Label, arm and runs of a row's lines; one for all arms of which the paper prints the best."""
    published = entry.row.published
    if entry.row.best and published:
        sign = 1 if all(result.score.higher for result in found.values()) else -1
        ran = [arm for arm in published if arm in found]
        if not ran:
            return [(f"best of {len(published)}", next(iter(published)), None)]
        best = max(ran, key=lambda arm: sign * found[arm].mean)
        chosen = dataclasses.replace(found[best], of=len(ran))
        return [(f"best of {len(published)}: {best}", best, chosen)]
    names = (*published, *(arm for arm in entry.row.arms if arm in arms))
    return [(arm, arm, found.get(arm)) for arm in names]


def _cells(line: Shown, found: Mapping[str, ArmResult]) -> tuple[str, ...]:
    ours = line.result
    published = "" if line.published is None else printed(line.published)
    if ours is None:
        return (line.label, line.arm, published, "", "", "", "", "not run")
    form = f".{ours.score.digits}f"
    scale, structure = differences(ours, found, line.examples)
    return (
        line.label,
        line.arm,
        published,
        f"{ours.shown()} ({len(ours.reached)})",
        "" if line.published is None else f"{ours.mean - line.published:+{form}}",
        *(_shown(one, form) for one in (scale, structure)),
        verdict(scale, structure, ours.score.higher),
    )


def printed(score: float) -> str:
    """A published score with its digits, at least two.

    >>> printed(91.4), printed(1.233)
    ('91.40', '1.233')
    """
    return f"{score:.{max(2, len(str(score).partition('.')[2]))}f}"


def differences(
    ours: ArmResult, found: Mapping[str, ArmResult], examples: int = 0
) -> tuple[Difference | None, Difference | None]:
    """An arm's differences to the default, and to noise of the same norms.

    Args:
        ours: the arm.
        found: all arms of its comparison.
        examples: number of test images that give one seed an interval; 0 for none.
    """
    default, noise = found.get(DEFAULT), found.get(ours.control)
    return _difference(ours, default, examples), _difference(ours, noise, examples)


def _difference(ours: ArmResult, theirs: ArmResult | None, examples: int) -> Difference | None:
    if theirs is None:
        return None
    difference = ours.versus(theirs)
    if difference and difference.low is None and ours.score == ACCURACY and examples:
        (seed,) = ours.reached.keys() & theirs.reached.keys()
        return accuracy_difference(ours.reached[seed], theirs.reached[seed], examples)
    return difference


def _shown(difference: Difference | None, form: str) -> str:
    if difference is None:
        return ""
    mark = IMAGES if difference.n == 1 and difference.low is not None else ""
    return f"{difference:{form}}{mark}"


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
