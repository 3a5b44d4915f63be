"""Tables in which each arm is compared in the row where it did best in a trial: the league.

Rows are candidates, such as learning rates. Trials are runs of other seeds, and of a validation
split where the data has one; they are lines of the results like any other.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from launch import tables
from launch.marks import counted, marks_of
from launch.registry import Entry, entries
from launch.results import Results
from mimetic_jax.train.record import SCORES, Record
from mimetic_jax.train.report import DEFAULT, ArmResult
from mimetic_jax.train.statistics import Difference, holm, smallest_gain
from papers import TABLES, today, trained
from papers.league import ENTRANTS as OF_LEAGUE
from papers.league import LONG

ENTRANTS = OF_LEAGUE | trained.ENTRANTS | today.ENTRANTS
"""What each arm of such a table is, in words; the others are their controls."""


@dataclasses.dataclass(frozen=True)
class Standing:
    """An arm in the row that it chose.

    Attributes:
        entry: the row.
        edge: whether it didn't try both rows next to that one: its best may be beyond.
        result: its runs there.
        gain: over the default at the default's own best, with p corrected for the number of
            entrants of the task (Holm); None for the default, and without shared seeds.
        structure: over noise of its norms, likewise; None for an arm without such a control.
    """

    entry: Entry
    edge: bool
    result: ArmResult
    gain: Difference | None = None
    structure: Difference | None = None

    @property
    def verdict(self) -> str:
        """What the differences say of the arm, in a word."""
        return tables.verdict(self.gain, self.structure, self.result.score.higher)


@dataclasses.dataclass(frozen=True)
class Choice:
    """The row that an arm chose in its trials.

    Attributes:
        number: of the row, from 1.
        edge: whether the arm didn't try both rows next to it, such as a higher learning rate.
    """

    number: int
    edge: bool


def trials(rows: Sequence[Entry], results: Results) -> list[Entry]:
    """The runs by which the arms of rows choose one; none for rows that are compared as they are.

    All arms try the first rows of the table. Where the best of the rows that an arm tried has a
    neighbor which the arm didn't try, that is next: called again once these runs are finished, this
    has it too, until the best of each arm lies between worse ones or the table ends.

    >>> first = trials(entries("league/digits"), Results("no results yet"))
    >>> [trial.row.label for trial in first]
    ['learning rate 3e-3', 'learning rate 1e-2', 'learning rate 3e-2']
    >>> first[0].seeds, first[0].spec.flags[-1]
    ((100,), '--config.data.held_out=0.2')
    """
    picked = choices(rows, results)
    wanted = []
    for trial in _trials(rows):
        table = TABLES[trial.table]
        beside = {arm for arm, one in picked.items() if abs(trial.number - one.number) <= 1}
        known = _tried(trial, results)
        arms = [
            arm for arm in trial.init if trial.number in table.first or arm in {*beside, *known}
        ]
        if arms:
            wanted.append(dataclasses.replace(trial, init=tuple(arms)))
    return wanted


def _trials(rows: Sequence[Entry]) -> list[Entry]:
    """All rows with the seeds and flags of their trials."""
    return [
        dataclasses.replace(
            entry,
            spec=dataclasses.replace(entry.spec, flags=(*entry.spec.flags, *table.trial_flags)),
            seeds=table.trials,
        )
        for entry in rows
        if (table := TABLES.get(entry.table)) and table.trials
    ]


def choices(rows: Sequence[Entry], results: Results) -> dict[str, Choice]:
    """The row that each arm chose; arms that miss a trial of the table's first rows are left out.

    Of a text the loss on the validation text decides, else the score; of equal ones the row that is
    next to the middle of the first rows.
    """
    if not (of_trials := _trials(rows)):
        return {}
    table = TABLES[of_trials[0].table]
    middle = float(np.mean(table.first))
    tried = {trial.number: _tried(trial, results) for trial in of_trials}
    found = {}
    for arm in dict.fromkeys(arm for trial in of_trials for arm in trial.init):
        goodness = {number: of_row[arm] for number, of_row in tried.items() if arm in of_row}
        if goodness.keys() >= set(table.first):
            best = max(goodness, key=lambda at: (goodness[at], -abs(at - middle)))
            found[arm] = Choice(best, not goodness.keys() >= {best - 1, best + 1})
    return found


def _tried(trial: Entry, results: Results) -> dict[str, float]:
    """How well the arms that have all runs of a trial did in it; more is better."""
    ((_, of_arms),) = counted([trial], results)
    return {
        arm: float(np.mean([_goodness(result.runs[seed]) for seed in trial.seeds]))
        for arm, result in of_arms.items()
        if result.runs.keys() >= set(trial.seeds)
    }


def chosen(rows: Sequence[Entry], results: Results) -> list[Entry]:
    """Rows with the arms that chose them; rows without one are left out."""
    picked = choices(rows, results)
    found = []
    for row in rows:
        arms = tuple(arm for arm in row.init if arm in picked and picked[arm].number == row.number)
        if arms:
            found.append(dataclasses.replace(row, init=arms))
    return found


def _goodness(run: Record) -> float:
    """More is better; of a text `loss` is that of the validation text, `value` of the test text."""
    score = SCORES[run.score]
    if score.chosen_by:
        return -float(run.loss if run.loss is not None else np.inf)
    return run.value if score.higher else -run.value


def standings(task: str, results: Results) -> list[Standing]:
    """The arms of a task that have runs at their own best, controls too, the default first."""
    rows = entries(task)
    picked = choices(rows, results)
    found: dict[str, Standing] = {}
    for entry, of_arms in counted(chosen(rows, results), results):
        for arm, result in of_arms.items():
            trials = TABLES[task].trials
            runs = {seed: run for seed, run in result.runs.items() if seed not in trials}
            if runs:
                found[arm] = Standing(entry, picked[arm].edge, ArmResult(arm, runs))
    if DEFAULT not in found:
        return []
    entrants = [arm for arm in rows[0].init if arm in found and arm in ENTRANTS]
    # Whatever rates they chose: those of one row say which arm is the control of which.
    marks = marks_of(rows[0].spec.load(rows[0].init), None)
    gains, structures = (
        holm(
            [
                found[arm].result.versus(found[other].result) if other in found else None
                for arm, other in beside.items()
            ]
        )
        for beside in (
            dict.fromkeys(entrants, DEFAULT),
            {arm: marks[arm].control for arm in entrants},
        )
    )
    for arm, gain, structure in zip(entrants, gains, structures, strict=True):
        found[arm] = dataclasses.replace(found[arm], gain=gain, structure=structure)
    return [found[arm] for arm in rows[0].init if arm in found]


def _of_entrants(task: str, results: Results) -> list[Standing]:
    return [one for one in standings(task, results) if one.result.arm in ENTRANTS]


def sensitivity(task: str, results: Results) -> str:
    """What a task can show, from its default's spread over seeds: to be read before the others run.

    Empty with fewer than two runs of the default.
    """
    default = next((one.result for one in standings(task, results)), None)
    if default is None or default.sd is None:
        return ""
    n = len(default.reached)
    entrants = [arm for arm in entries(task)[0].init if arm in ENTRANTS and arm != DEFAULT]
    form = f".{default.score.digits}f"
    gain, corrected = (smallest_gain(default.sd, n, of) for of in (1, len(entrants)))
    return (
        f"{task}: the default reaches {default.shown()} with {n} seeds; nine times of ten they "
        f"show a gain of {gain:{form}} of one arm, and of {corrected:{form}} among "
        f"{len(entrants)} (Holm)"
    )


_HEAD = ("best at", "ours ± sd (n)", "Δ default [95 % CI]", "Δ noise [95 % CI]", "verdict")


def task_table(task: str, results: Results) -> str:
    """A task: each entrant with its rate, score, gains and verdict, the best first."""
    shown = sorted(
        _of_entrants(task, results),
        key=lambda one: one.result.mean,
        reverse=TABLES[task].higher,
    )
    return tables.lines(
        ("initialization", *_HEAD), [(f"`{one.result.arm}`", *_cells(one)) for one in shown]
    )


def settings_table(tasks: Sequence[str], results: Results) -> str:
    """Candidates by settings: each entrant of each of these tables that has all its seeds."""
    lines = [
        (task.partition("/")[2], f"`{one.result.arm}`", *_cells(one))
        for task in tasks
        for one in _of_entrants(task, results)
        if len(one.result.reached) >= len(one.entry.seeds)
    ]
    return tables.lines(("setting", "candidate", *_HEAD), lines)


def _cells(standing: Standing) -> tuple[str, ...]:
    ours, gain, structure = standing.result, standing.gain, standing.structure
    form = f".{ours.score.digits}f"
    return (
        standing.entry.row.label.removeprefix("learning rate ") + "*" * standing.edge,
        f"{ours.shown()} ({len(ours.reached)})",
        f"{gain:{form}}" if gain else "",
        f"{structure:{form}}" if structure else "",
        standing.verdict,
    )


def league_table(results: Results) -> str:
    """The league in one Markdown table: entrants by tasks, the gain over the default in each cell.

    Bold is a gain or loss that holds after Holm's correction, for the entrants of the task. In
    parentheses is the gain over noise of the same norms.
    """
    tasks = [name for name in TABLES if name.startswith("league/") and name not in LONG]
    found = {task: shown for task in tasks if (shown := _of_entrants(task, results))}
    head = ["initialization"]
    cells: dict[str, dict[str, str]] = defaultdict(dict)
    beaten: dict[str, list[float]] = defaultdict(list)
    for task, shown in found.items():
        default = shown[0].result
        head.append(f"{task.partition('/')[2]}, {default.score.label}, n = {len(default.runs)}")
        for one in shown:
            cells[one.result.arm][task] = _cell(one)
            beaten[one.result.arm].append(_beaten(one, shown))
    order = sorted(cells, key=lambda arm: -float(np.mean(beaten[arm])))
    return tables.lines(
        head, [(f"`{arm}`", *(cells[arm].get(task, "") for task in found)) for arm in order]
    )


def _beaten(standing: Standing, of_task: Sequence[Standing]) -> float:
    """The share of a task's arms that one beats by its mean."""
    sign = 1 if standing.result.score.higher else -1
    means = np.array([one.result.mean for one in of_task])
    return float(np.mean(sign * means < sign * standing.result.mean))


def _cell(standing: Standing) -> str:
    """Gain over the default, and in parentheses over noise; bold where it holds."""
    score = standing.result.score
    form = f"+.{score.digits}f"
    if standing.gain is None:
        return f"{standing.result.mean:.{score.digits}f}"
    text = f"{standing.gain.mean:{form}}"
    if standing.gain.n < len(standing.entry.seeds):
        text += f" n={standing.gain.n}"
    if standing.gain.side(score.higher):
        text = f"**{text}**"
    return text + (f" ({standing.structure.mean:{form}})" if standing.structure else "")
