"""Tables in which each arm is compared in the row where it did best in a trial: the league.

Rows are candidates, such as learning rates. Trials are runs of other seeds, and of a validation
split if the data has one; they are lines of the results like any other. Arms that are no
controls are the entrants.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from configs.arms import CONTROLS
from launch.rows import rows
from launch.runs import OURS, Results, ours
from mimetic_jax.train.controls import NOISE
from mimetic_jax.train.record import SCORES, Record
from mimetic_jax.train.report import (
    BASELINES,
    DEFAULT,
    ArmResult,
    compared,
    markdown,
    shows,
    trimmed,
)
from mimetic_jax.train.statistics import Difference, holm
from papers import TABLES
from papers.record import Row


class Chosen(NamedTuple):
    """An arm's runs in the row that it chose.

    At an edge it didn't try both rows next to that one: its best may be beyond.
    """

    row: Row
    edge: bool
    result: ArmResult


def trials(task: str, results: Results) -> list[Row]:
    """The runs by which the arms of a task choose their row.

    All arms try the first rows of the table. If the best of the rows that an arm tried has a
    neighbor which the arm didn't try, that is next: called again once these runs are finished, this
    has it too, until the best of each arm lies between worse ones or the table ends.

    >>> first = trials("questions/base_flax", Results("no results yet"))
    >>> [trial.label for trial in first]
    ['learning rate 5e-4', 'learning rate 1e-3', 'learning rate 2e-3']
    >>> first[0].seeds, first[0].fields["data.held_out"]
    ((100, 101, 102, 103, 104), 0.2)
    """
    tried, picked, wanted = _tried(task, results), choices(task, results), []
    for trial in _trials(task):
        near = {arm for arm, (best, _) in picked.items() if abs(trial.number - best) <= 1}
        near |= {arm for arm, goodness in tried.items() if trial.number in goodness}
        first = trial.number in TABLES[task].first
        if arms := tuple(arm for arm in trial.arms if first or arm in near):
            wanted.append(dataclasses.replace(trial, arms=arms))
    return wanted


def choices(task: str, results: Results) -> dict[str, tuple[int, bool]]:
    """The number of the row that each arm chose, and whether it is an edge (see `Chosen`).

    Of a text the loss on the validation text decides, else the score; of equal ones the row that is
    next to the middle of the first rows. Arms that miss a trial of those are left out.
    """
    first, found = TABLES[task].first, {}
    for arm, goodness in _tried(task, results).items():
        if goodness.keys() >= set(first):
            best = max(goodness, key=lambda at: (goodness[at], -abs(at - float(np.mean(first)))))
            found[arm] = best, not goodness.keys() >= {best - 1, best + 1}
    return found


def chosen_rows(task: str, results: Results) -> list[Row]:
    """Rows with the arms that chose them; rows without one are left out."""
    picked, found = choices(task, results), []
    for row in rows(task):
        if arms := tuple(a for a in row.arms if a in picked and picked[a][0] == row.number):
            found.append(dataclasses.replace(row, arms=arms))
    return found


def _trials(task: str) -> list[Row]:
    """All rows with the seeds and fields of their trials."""
    table = TABLES[task]
    return [
        dataclasses.replace(row, fields={**row.fields, **table.trial_fields}, seeds=table.trials)
        for row in rows(task)
    ]


def _tried(task: str, results: Results) -> dict[str, dict[int, float]]:
    """How well each arm did in the rows of which it has all trials; more is better."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for trial in _trials(task):
        for arm, one in results.reached(trial).items():
            if one.runs.keys() >= set(trial.seeds):
                runs = (one.runs[seed] for seed in trial.seeds)
                found[arm][trial.number] = float(np.mean([_goodness(run) for run in runs]))
    return found


def _goodness(run: Record) -> float:
    """More is better; of a text `loss` is that of the validation text, `value` of the test text."""
    score = SCORES[run.score]
    if score.chosen_by:
        return -float(run.loss if run.loss is not None else np.inf)
    return run.value if score.higher else -run.value


def standings(task: str, results: Results) -> list[Chosen]:
    """The arms of a task that have runs at their own best, controls too, the default first.

    Seeds that the table doesn't name are left out: trials, and those of a table that asks again.

    Entrants are compared with the default at the default's own best, and with their controls at
    theirs, with the spread of all arms of the task and p corrected for their number (Holm). None is
    shown before the default has runs, in a task that has it.
    """
    every = rows(task)
    of_rows = [results.reached(row) for row in every]
    # Whatever rates they chose: the rows that all tried say which arm is the control of which.
    controls: dict[str, dict[str, str]] = defaultdict(dict)
    for trial in _trials(task):
        for arm, result in results.reached(trial).items():
            controls[arm] |= result.controls
    found, picked = [], choices(task, results)
    for arm, (number, _) in picked.items():
        runs = of_rows[number - 1][arm].runs if arm in of_rows[number - 1] else {}
        if own := {seed: runs[seed] for seed in every[0].seeds if seed in runs}:
            found.append(ArmResult(arm, own, controls=controls.get(arm, {})))
    arms = {one.arm: one for one in compared(found)}
    if DEFAULT in every[0].arms and DEFAULT not in arms:
        return []
    entrants = [arm for arm in arms if _is_entrant(arm)]
    differences: dict[str, dict[str, Difference]] = defaultdict(dict)
    for name in BASELINES:
        corrected = holm([arms[arm].differences.get(name) for arm in entrants])
        for arm, one in zip(entrants, corrected, strict=True):
            differences[arm] |= {name: one} if one else {}
    return [
        Chosen(
            every[picked[arm][0] - 1],
            picked[arm][1],
            dataclasses.replace(arms[arm], differences=differences[arm]),
        )
        for arm in every[0].arms
        if arm in arms
    ]


def _is_entrant(arm: str) -> bool:
    return not arm.startswith(tuple(CONTROLS))


def _of_entrants(task: str, results: Results) -> list[Chosen]:
    return [one for one in standings(task, results) if _is_entrant(one.result.arm)]


def sensitivity(task: str, results: Results) -> str:
    """What a task can show, from its default's spread over seeds: to be read before the others run.

    Empty with fewer than two runs of the default.
    """
    default = next((one.result for one in standings(task, results)), None)
    if default is None or default.sd is None:
        return ""
    arms = rows(task)[0].arms
    entrants = sum(map(_is_entrant, arms)) - 1
    shown = shows([default], arms=len(arms), at_once=entrants)
    return f"{task}: the default reaches {default.shown()}; {shown}"


def task_table(task: str, results: Results) -> str:
    """A task: each entrant with its rate, score, gains and verdict, the best first."""
    shown = _of_entrants(task, results)
    best_first = bool(shown) and shown[0].result.score.higher
    shown.sort(key=lambda one: one.result.mean, reverse=best_first)
    cells = [(f"`{one.result.arm}`", _rate(one), *ours(one.result)) for one in shown]
    return markdown(trimmed(("initialization", "best at", *OURS), cells))


_EDGE = "†"
"""After what an arm reached at a rate whose neighbors it didn't both try."""


def _rate(one: Chosen) -> str:
    return one.row.label.removeprefix("learning rate ") + _EDGE * one.edge


def grid(
    tasks: Sequence[str], results: Results, *, intervals: bool = False, most: int | None = None
) -> str:
    """Entrants by tasks in a Markdown table: gains over the default, whose score is there.

    In parentheses is the gain over noise of the same norms; of scores with a goal, cells are how
    many seeds reach it, and how many of the noise. Bold holds after Holm's correction, for
    the entrants of the task; † marks an arm whose rate has an untried neighbor. First is who
    gains in the most tasks, then who beats the most others.

    Tasks without a run are left out. With `intervals` gains have theirs, and scores their
    deviation; of more than `most` entrants, the default among them, the first are shown.
    """
    found = {task: shown for task in tasks if (shown := _of_entrants(task, results))}
    head = ["initialization"]
    cells: dict[str, dict[str, str]] = defaultdict(dict)
    beaten: dict[str, list[float]] = defaultdict(list)
    gained: dict[str, int] = defaultdict(int)
    for task, shown in found.items():
        score = shown[0].result.score
        head.append(f"{task.partition('/')[2]}, {score.label}, n = {len(shown[0].result.runs)}")
        goodness = [one.result.mean if score.higher else -one.result.mean for one in shown]
        for one, good in zip(shown, goodness, strict=True):
            arm, gain = one.result.arm, one.result.differences.get(DEFAULT)
            cells[arm][task] = _cell(one, intervals)
            beaten[arm].append(float(np.mean(np.array(goodness) < good)))
            gained[arm] += gain.side(score.higher) if gain else 0
    order = sorted(cells, key=lambda arm: (-gained[arm], -float(np.mean(beaten[arm]))))
    first = set([arm for arm in order if arm != DEFAULT][: most and most - 1])
    order = [arm for arm in order if arm in first or arm == DEFAULT]
    lines = [(f"`{arm}`", *(cells[arm].get(task, "") for task in found)) for arm in order]
    return markdown(trimmed(head, lines))


def _cell(chosen: Chosen, intervals: bool) -> str:
    result = chosen.result
    form = f".{result.score.digits}f"

    def shown(one: Difference, of: int = 0) -> str:
        if one.counts:
            text = f"{one.counts[of]} of {one.n}"
        else:
            text = f"{one:{form}}" if intervals else f"{one.mean:+{form}}"
        return f"**{text}**" if one.side(result.score.higher) else text

    edge = _EDGE * chosen.edge
    gain, structure = (result.differences.get(name) for name in (DEFAULT, NOISE))
    if gain is None:
        text, goal = result.shown() if intervals else f"{result.mean:{form}}", result.score.goal
        if goal is not None:
            reached = sum(value >= goal for value in result.reached.values())
            text += f", {reached} of {len(result.reached)}"
        return text + edge
    text = shown(gain) + edge + f" n={gain.n}" * (gain.n < len(chosen.row.seeds))
    return text + (f" ({shown(structure, of=1)})" if structure else "")
