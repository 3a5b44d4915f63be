"""Pages of what the runs say, every number filled in from their lines.

In a page such as papers/findings.md, `{evidence/text row 3: mimetic - default}` stands for the
paired difference of two arms with its interval and number of seeds,
`{evidence/text row 3: mimetic - row 2: default}` for that to another row's arm, and
`{evidence/text row 3: mimetic}` for an arm's mean ± sd; `row 3 scaled` means the scaled form of a
row, `at 500` in the end the evaluation after that step, `at x2` the score on another test set, and
`to goal` the steps to the goal of the score. In a task of the league every arm has its own row:
`{league/text: mimetic}`, `{league/text: mimetic - default}`, or `- mup` for another arm, and
`{league/text: mimetic - noise}`. `{verdicts}` is the table of all comparisons of the papers'
methods.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Mapping

from launch.league import Standing, standings
from launch.marks import marks_of_lines, reached
from launch.registry import Entry, Spec, entries, scaled_entries
from launch.results import Results
from launch.tables import what_pays
from mimetic_jax.errors import InputError
from mimetic_jax.train.report import ArmResult, markdown
from papers import TABLES

_METHODS = ("mimetic", "impulse", "mean_shift", "conv", "empirical")
"""The papers' own initializations, as configurations name their arms."""
_PLACE = re.compile(
    r"\{(?P<table>\S+) row (?P<row>\d+)(?P<scaled> scaled)?: (?P<ours>\w+)"
    r"(?: - (?:row (?P<other>\d+): )?(?P<theirs>\w+))?(?: (?P<number>at \w+|to goal))?\}"
)

_STANDING = re.compile(r"\{(?P<task>league/\w+): (?P<arm>\w+)(?: - (?P<than>\w+))?\}")


def findings(results: Results, page: pathlib.Path) -> str:
    """A page with its numbers.

    Raises:
        InputError: it names an unknown table, row or arm.
    """
    rows = _Rows(results)
    try:
        text = _PLACE.sub(lambda found: _number(found, rows), page.read_text())
        text = _STANDING.sub(lambda found: _standing(found, rows), text)
    except InputError as error:
        raise InputError(f"{page}: {error}") from error
    return text.replace("{verdicts}", _table(rows))


class _Rows:
    """What each arm of a row reached, where it has runs of today's configuration."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._arms: dict[tuple[Spec, tuple[str, ...]], dict[str, ArmResult]] = {}
        self._standings: dict[str, dict[str, Standing]] = {}

    def arms(self, entry: Entry) -> Mapping[str, ArmResult]:
        """By name; the configuration is loaded once for all places that name its row."""
        key = entry.spec, entry.init
        if key not in self._arms:
            marks = marks_of_lines([entry], self._results).get(entry.spec, {})
            self._arms[key] = reached(entry.spec, self._results, marks)
        return self._arms[key]

    def standings(self, task: str) -> Mapping[str, Standing]:
        """Of a task of the league, by arm."""
        if task not in self._standings:
            self._standings[task] = {one.arm: one for one in standings(task, self._results)}
        return self._standings[task]


def _table(rows: _Rows) -> str:
    """A table of the comparisons that have runs of a method, of the default and of noise."""
    columns: dict[str, list[str]] = {
        name: []
        for name in ("row", "method", "n", "Δ default [95 % CI]", "Δ noise [95 % CI]", "what pays")
    }
    for cells in _verdicts(rows):
        for column, cell in zip(columns.values(), cells, strict=True):
            column.append(cell)
    return markdown(columns)


def _verdicts(rows: _Rows) -> Iterator[tuple[str, ...]]:
    for name in (name for name, table in TABLES.items() if not table.trials):
        for entry in (*entries(name), *scaled_entries(name)):
            found = rows.arms(entry)
            for method in _METHODS:
                default, ours = found.get("default"), found.get(method)
                noise = found.get(ours.control) if ours else None
                if not ours or not noise or not default:
                    continue
                scale, structure = ours.versus(default), ours.versus(noise)
                if scale and structure:
                    form = f".{ours.score.digits}f"
                    yield (
                        f"{name} {entry.number}. {entry.row.label}{', scaled' * entry.spec.small}",
                        method,
                        ", ".join(dict.fromkeys((str(scale.n), str(structure.n)))),
                        f"{scale:{form}}",
                        f"{structure:{form}}",
                        what_pays(scale, structure, ours.score.higher),
                    )


def _number(found: re.Match[str], rows: _Rows) -> str:
    if found["table"] not in TABLES:
        raise InputError(f"{found[0]}: unknown table {found['table']}")
    one, seeds = _arm(found, found["row"], found["ours"], rows)
    form = ".0f" if found["number"] == "to goal" else f".{one.score.digits}f"
    if found["theirs"]:
        other, of = _arm(found, found["other"] or found["row"], found["theirs"], rows)
        difference = one.versus(other)
        if difference is None:
            raise InputError(
                f"{found[0]}: no seed has runs of both arms, or {one.arm} is a baseline"
            )
        if len(one.runs) < seeds or len(other.runs) < of:
            raise InputError(f"{found[0]}: some seeds never reach the goal")
        return f"{difference:{form}} (n = {difference.n})"
    if not one.runs:
        return f"never (n = {seeds})"
    some = f" of {seeds}" if len(one.runs) < seeds else ""
    return f"{one.shown(form)} (n = {len(one.reached)}{some})"


def _standing(found: re.Match[str], rows: _Rows) -> str:
    if found["task"] not in TABLES:
        raise InputError(f"{found[0]}: unknown table {found['task']}")
    known, than = rows.standings(found["task"]), found["than"]
    for arm in {found["arm"], than} - {None, "noise"}:
        if arm not in known:
            raise InputError(f"{found[0]}: no runs of {arm}; there are those of {', '.join(known)}")
    one = known[found["arm"]]
    if not than:
        return f"{one.result.shown()} (n = {len(one.result.reached)})"
    difference = one.structure if than == "noise" else one.result.versus(known[than].result)
    if difference is None:
        raise InputError(f"{found[0]}: no seed has runs of both arms")
    return f"{difference:.{one.result.score.digits}f} (n = {difference.n})"


def _arm(found: re.Match[str], row: str, name: str, rows: _Rows) -> tuple[ArmResult, int]:
    """The runs of an arm that have the number a place asks for, and of how many."""
    (entry,) = entries(found["table"], int(row), small=bool(found["scaled"]))
    arms = rows.arms(entry)
    if name not in arms:
        known = ", ".join(arms) or "none"
        raise InputError(f"{found[0]}: no runs of {name}; there are those of {known}")
    result = arms[name]
    if found["number"]:
        try:
            return result.at(found["number"].split()[1]), len(result.runs)
        except InputError as error:
            raise InputError(f"{found[0]}: {error}") from error
    return result, len(result.runs)
