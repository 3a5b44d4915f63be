"""The table of results: what each arm reached, and what that says about its scheme."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.train.cluster.processes import is_first
from mimetic_jax.train.record import ACCURACY, SCORES, Record, Score
from mimetic_jax.train.statistics import Difference, paired_difference
from mimetic_jax.train.store.places import Place
from mimetic_jax.train.store.runs import Run

DEFAULT = "default"
"""The arm that others are compared with, where a comparison has it."""

BASELINES = (DEFAULT, "noise")
"""What a table compares an arm with: the default, and its own control."""


@dataclasses.dataclass(frozen=True)
class ArmResult:
    """The finished runs of an arm.

    Attributes:
        arm: its name.
        runs: their records by seed.
        row: of a table of several comparisons; arms of one row are compared.
        of: number of arms of which this one is the best, by which its intervals are corrected.
        control: the arm that is its control (`controls`); empty: nothing is said of its structure.

    Raises:
        InputError: the runs were trained on different data.
    """

    arm: str
    runs: Mapping[int, Record]
    row: str = ""
    of: int = 1
    control: str = ""

    def __post_init__(self) -> None:
        first: dict[str, Record] = {}
        for record in self.runs.values():
            if record.data:
                first.setdefault(record.data, record)
        if len(first) > 1:
            one, other, *_ = first.values()
            raise InputError(
                f"{self.arm}: seed {one.seed} was trained on data of fingerprint {one.data}, seed "
                f"{other.seed} on {other.data}: they can't be in one table"
            )

    @property
    def score(self) -> Score:
        """What is compared."""
        return next((SCORES[record.score] for record in self.runs.values()), ACCURACY)

    @property
    def reached(self) -> dict[int, float]:
        """The score by seed."""
        return {seed: record.value for seed, record in self.runs.items()}

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.reached.values())))

    @property
    def sd(self) -> float | None:
        """Standard deviation over seeds; None for one."""
        values = list(self.reached.values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def shown(self, form: str = "") -> str:
        """Mean ± sd; with the digits of the score unless a format is given."""
        form = form or f".{self.score.digits}f"
        return f"{self.mean:{form}}" + (f" ± {self.sd:{form}}" if self.sd is not None else "")

    @property
    def mean_seconds(self) -> float:
        return float(np.mean([record.seconds for record in self.runs.values()]))

    def versus(self, other: ArmResult) -> Difference | None:
        """The paired difference to another arm; None without a seed that both have."""
        if self.arm == other.arm:
            return None
        assert self.row == other.row
        shared = sorted(self.reached.keys() & other.reached.keys())
        if not shared:
            return None
        ours, theirs = ([one.reached[seed] for seed in shared] for one in (self, other))
        return paired_difference(ours, theirs, of=self.of)

    def steps_to(self, target: ArmResult) -> list[int | None]:
        """First evaluated step that reaches the target's last score with the same seed."""
        return [
            self._step_to(seed, final)
            for seed, final in sorted(target.reached.items())
            if seed in self.runs
        ]

    def steps_to_goal(self) -> list[int | None]:
        """First evaluated step of each seed that reaches the goal of the score."""
        assert self.score.goal is not None
        return [self._step_to(seed, self.score.goal) for seed in sorted(self.runs)]

    def elsewhere(self, name: str) -> list[float]:
        """The last score of each seed on another test set."""
        return [
            run.elsewhere[name] for _, run in sorted(self.runs.items()) if name in run.elsewhere
        ]

    def at(self, number: str) -> ArmResult:
        """The runs with another number as their value.

        Args:
            number: "500", the score after that step; "x2", that on another test set; "goal", the
                first evaluated step that reaches the goal, of the runs that reach it.

        Raises:
            InputError: a run has no such number.
        """
        values: dict[int, float | None] = {}
        if number == "goal":
            if self.score.goal is None:
                raise InputError(f"{self.score.label} has no goal")
            values = dict(zip(sorted(self.runs), self.steps_to_goal(), strict=True))
        for seed, run in self.runs.items() if number != "goal" else ():
            known = {str(step): value for step, value in run.curve} | dict(run.elsewhere)
            if number not in known:
                lacking = f"step {number} was" if number.isdigit() else f"test set {number} was"
                raise InputError(f"{lacking} not evaluated")
            values[seed] = known[number]
        runs = {
            seed: dataclasses.replace(self.runs[seed], value=float(value))
            for seed, value in values.items()
            if value is not None
        }
        return dataclasses.replace(self, runs=runs)

    def _step_to(self, seed: int, target: float) -> int | None:
        sign = 1 if self.score.higher else -1
        curve = self.runs[seed].curve
        return next((step for step, value in curve if sign * (value - target) >= 0), None)


@dataclasses.dataclass(frozen=True, repr=False)
class Results:
    """The finished runs of a comparison: prints as its table, in a notebook too.

    Attributes:
        workdir: where they are.
        arms: the results of those that have any, in the order of the table.
    """

    workdir: Place
    arms: Mapping[str, ArmResult]

    def __str__(self) -> str:
        return table(list(self.arms.values()))

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return str(self)

    def to_dicts(self) -> list[dict[str, Any]]:
        """A dictionary per run of what its `Record` has, and the paths of its files.

        For `pandas.DataFrame`, `polars.DataFrame` and the like: every value is a number, a text or
        None. The curve is left out, `arms[NAME].runs[SEED].curve` has it; the score on another test
        set is named as in the metrics, such as "recall_x2".
        """
        rows = []
        for record in (run for arm in self.arms.values() for run in arm.runs.values()):
            fields = dataclasses.asdict(record)
            del fields["curve"]
            elsewhere = {f"{record.score}_{x}": y for x, y in fields.pop("elsewhere").items()}
            first = {name: fields.pop(name) for name in ("arm", "seed", "score", "value")}
            run = Run.of(self.workdir, record.arm, record.seed)
            files = {"metrics": str(run.metrics.place), "checkpoints": str(run.checkpoints)}
            rows.append({**first, **elsewhere, **fields, **files})
        return rows

    def write(self) -> None:
        """Write `table.md`, its numbers `table.csv`, and those of every seed `summary.json`.

        Raises:
            OSError: they can't be written, as in a folder that may only be read.
        """
        results = list(self.arms.values())
        if is_first() and results:
            records = [_record(result, _baselines(result, results)) for result in results]
            (self.workdir / "summary.json").write(json.dumps(records, indent=2) + "\n")
            (self.workdir / "table.md").write(f"{self}\n")
            (self.workdir / "table.csv").write(csv_text(*numbers(results)))


def numbers(results: Sequence[ArmResult]) -> tuple[list[str], list[list[Any]]]:
    """The numbers of a table as (header, rows), unrounded; None where there is none.

    >>> runs = {
    ...     seed: Record(arm="default", seed=seed, score="accuracy", value=value)
    ...     for seed, value in enumerate((60.0, 62.0))
    ... }
    >>> default = ArmResult("default", runs)
    >>> header, rows = numbers([default, dataclasses.replace(default, arm="mimetic")])
    >>> header[5:]
    ['difference to default', 'difference to default low', 'difference to default high']
    >>> rows[1]
    ['mimetic', 'accuracy %', 2, 61.0, 1.4142135623730951, 0.0, 0.0, 0.0]

    Args:
        results: of finished runs, in the order of the table.

    Returns:
        A row per arm: the mean and standard deviation over its n seeds, and the paired difference
        to the default and to its own noise, each with the ends of its 95 % confidence interval.
    """
    names = _baseline_names(results)
    header = ["arm", "score", "n", "mean", "sd"]
    for name in names:
        header += [f"difference to {name}{end}" for end in ("", " low", " high")]
    rows = []
    for result in results:
        row = [result.arm, result.score.label, len(result.reached), result.mean, result.sd]
        for name in names:
            baseline = _baseline(name, result, results)
            difference = result.versus(baseline) if baseline else None
            row += [difference.mean, difference.low, difference.high] if difference else [None] * 3
        rows.append(row)
    return header, rows


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """CSV, an observation per line; an absent number is an empty cell.

    >>> csv_text(["arm", "sd"], [["a, b", None]])
    'arm,sd\\n"a, b",\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def table(results: Sequence[ArmResult]) -> str:
    """A Markdown table of results, n in every row, and a sentence for each comparison.

    Arms are compared with the baselines of their own row, which has a column where results have it.

    >>> run = Record(
    ...     arm="default", seed=0, score="accuracy", value=61.5, curve=[(10, 61.5)], seconds=3
    ... )
    >>> print(table([ArmResult("default", {0: run})]))
    | arm     | accuracy % | n   | Δ default [95 % CI] | steps to default's score | train s |
    | ------- | ---------- | --- | ------------------- | ------------------------ | ------- |
    | default | 61.50      | 1   |                     | 10                       | 3.0     |
    """
    finished = _finished(results)
    if not finished:
        return "no finished run yet"
    sentences = verdicts(finished)
    return "\n".join([markdown(columns(finished)), *([""] if sentences else []), *sentences])


def columns(finished: Sequence[ArmResult]) -> dict[str, list[str]]:
    """The columns of a table by their headers, a cell per result."""
    names, score = _baseline_names(finished), finished[0].score
    found: dict[str, list[str]] = {}
    if any(result.row for result in finished):
        found["row"] = [result.row for result in finished]
    found["arm"] = [result.arm for result in finished]
    found[score.label] = [result.shown() for result in finished]
    found["n"] = [str(len(result.reached)) for result in finished]
    for name in names:
        found[f"Δ {name} [95 % CI]"] = [
            _difference_cell(result, _baseline(name, result, finished)) for result in finished
        ]
    found["steps to default's score"] = [
        _steps_cell(result, _baseline(DEFAULT, result, finished)) for result in finished
    ]
    found |= further_columns(finished)
    found["train s"] = [f"{result.mean_seconds:.1f}" for result in finished]
    return found


def verdicts(finished: Sequence[ArmResult]) -> list[str]:
    """A sentence for each comparison with a baseline."""
    return [
        _verdict(result, baseline, difference)
        for result in finished
        for baseline in _baselines(result, finished)
        if (difference := result.versus(baseline))
    ]


def further_columns(results: Sequence[ArmResult | None]) -> dict[str, list[str]]:
    """Columns that some scores add: the steps to their goal, and the score on other test sets.

    >>> curve = [(10, 60.0), (20, 96.0)]
    >>> run = Record(arm="default", seed=0, score="recall", value=96.0, curve=curve)
    >>> further_columns([ArmResult("default", {0: run}), None])
    {'steps to 95 [95 % CI]': ['20', '']}

    Args:
        results: a row each; empty cells for None, and for results without such numbers.
    """
    found = [result for result in results if result]
    columns: dict[str, list[str]] = {}
    for goal in dict.fromkeys(result.score.goal for result in found):
        if goal is not None and any(len(run.curve) > 1 for r in found for run in r.runs.values()):
            columns[f"steps to {goal:g} [95 % CI]"] = [
                _goal_cell(result) if result and result.score.goal == goal else ""
                for result in results
            ]
    for name in _elsewhere(found):
        columns[f"{found[0].score.label} at {name} [95 % CI]"] = [
            _interval_cell(result.elsewhere(name), result.score.digits) if result else ""
            for result in results
        ]
    return columns


def markdown(columns: Mapping[str, Sequence[str]]) -> str:
    """A table with its columns aligned."""
    widths = [max(3, len(header), *map(len, cells)) for header, cells in columns.items()]
    rows = [list(columns), ["-" * width for width in widths], *zip(*columns.values(), strict=True)]
    return "\n".join("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows)


def _finished(results: Sequence[ArmResult]) -> list[ArmResult]:
    return [result for result in results if result.reached]


def _baseline_names(results: Sequence[ArmResult]) -> list[str]:
    """Of the baselines that a comparison has."""
    return [
        name for name in BASELINES if any(_baseline(name, result, results) for result in results)
    ]


def _baseline(name: str, of: ArmResult, results: Sequence[ArmResult]) -> ArmResult | None:
    """The default, or the control of a result, in its row."""
    arm = DEFAULT if name == DEFAULT else of.control
    return next((other for other in results if (other.row, other.arm) == (of.row, arm)), None)


def _baselines(of: ArmResult, results: Sequence[ArmResult]) -> list[ArmResult]:
    found = [_baseline(name, of, results) for name in BASELINES]
    return [baseline for baseline in found if baseline]


def _record(result: ArmResult, baselines: Sequence[ArmResult]) -> dict[str, Any]:
    return {
        "arm": result.arm,
        f"{result.score.name}_mean": result.mean,
        f"{result.score.name}_sd": result.sd,
        "n": len(result.reached),
        result.score.name: result.reached,
        "seconds": result.mean_seconds,
        "differences": {
            baseline.arm: dataclasses.asdict(difference)
            for baseline in baselines
            if (difference := result.versus(baseline))
        },
        **{f"{result.score.name}_{x}": result.elsewhere(x) for x in _elsewhere([result])},
        **({"steps_to_goal": result.steps_to_goal()} if result.score.goal is not None else {}),
        "steps_to": {baseline.arm: result.steps_to(baseline) for baseline in baselines},
    }


def _difference_cell(result: ArmResult, baseline: ArmResult | None) -> str:
    difference = result.versus(baseline) if baseline else None
    return f"{difference:.{result.score.digits}f}" if difference else ""


def _steps_cell(result: ArmResult, default: ArmResult | None) -> str:
    if default is None:
        return ""
    return mean_step(result.steps_to(default))


def mean_step(steps: Sequence[int | None]) -> str:
    """The mean step of those that got there."""
    reached = [step for step in steps if step is not None]
    if not reached:
        return "never"
    some = "" if len(reached) == len(steps) else f" ({len(reached)} of {len(steps)} seeds)"
    return f"{np.mean(reached):.0f}{some}"


def _elsewhere(results: Sequence[ArmResult]) -> list[str]:
    """Names of the other test sets, in order."""
    runs = (run for result in results for run in result.runs.values())
    return list(dict.fromkeys(name for run in runs for name in run.elsewhere))


def _goal_cell(result: ArmResult) -> str:
    """The mean step with its interval; without one where a seed hasn't reached the goal."""
    steps = result.steps_to_goal()
    reached = [float(step) for step in steps if step is not None]
    if len(reached) < len(steps):
        return mean_step(steps)
    return _interval_cell(reached, digits=0)


def _interval_cell(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    found, form = paired_difference(values, [0.0] * len(values)), f".{digits}f"
    ends = "" if found.low is None else f" [{found.low:{form}}, {found.high:{form}}]"
    return f"{found.mean:{form}}{ends}"


def _verdict(result: ArmResult, baseline: ArmResult, difference: Difference) -> str:
    unit = " points" if result.score.scale == 100 else ""
    shown = f"{difference:.{result.score.digits}f}{unit}"
    row = f"{result.row}, " if result.row else ""
    against = f"{row}{result.arm} against {baseline.arm}: {shown}, n={difference.n}"
    return f"{against}: {difference.verdict(result.score.higher)}"
