"""The table of a comparison: what each arm reached, and what that says about the scheme."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.stats

from mimetic_jax.train.loop import Run
from mimetic_jax.train.metrics import write_atomically

BASELINES = ("default", "norm_matched")
"""The arms that others are compared with, where a comparison has them."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """Mean difference of paired runs in points of accuracy, with its 95 % confidence interval.

    The interval is Student's t over the differences of runs that share a seed; None for n < 2.
    """

    mean: float
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.mean:+.2f} (n=1)"
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """The difference of two lists of accuracies, pair by pair.

    >>> print(paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0]))
    +1.17 [+0.45, +1.88]
    """
    deltas = np.subtract(ours, theirs)
    mean, n = float(deltas.mean()), len(deltas)
    if n < 2:
        return Difference(mean, None, None, n)
    half = float(scipy.stats.t.ppf(0.975, n - 1) * deltas.std(ddof=1) / np.sqrt(n))
    return Difference(mean, mean - half, mean + half, n)


@dataclasses.dataclass(frozen=True)
class ArmResult:
    """What the finished runs of an arm reached, by seed."""

    arm: str
    accuracy: dict[int, float]  # percent, after the last step
    curve: dict[int, list[tuple[int, float]]]  # (step, percent) of every evaluation
    seconds: dict[int, float]  # of training, without compiling

    @classmethod
    def read(cls, workdir: pathlib.Path, arm: str, seeds: Sequence[int], steps: int) -> ArmResult:
        """From the metrics of those runs that are finished."""
        runs = {seed: Run.of(workdir, arm, seed) for seed in seeds}
        curves = {
            seed: [(r["step"], 100 * r["eval_accuracy"]) for r in run.evaluations()]
            for seed, run in runs.items()
            if run.finished(steps)
        }
        return cls(
            arm=arm,
            accuracy={seed: curve[-1][1] for seed, curve in curves.items()},
            curve=curves,
            seconds={seed: runs[seed].evaluations()[-1]["seconds"] for seed in curves},
        )

    def versus(self, other: ArmResult) -> Difference | None:
        shared = sorted(self.accuracy.keys() & other.accuracy.keys())
        if not shared or self.arm == other.arm:
            return None
        return paired_difference(
            [self.accuracy[seed] for seed in shared], [other.accuracy[seed] for seed in shared]
        )

    def steps_to(self, target: ArmResult) -> list[int | None]:
        """First evaluated step that reaches the target's last accuracy with the same seed."""
        return [
            next((step for step, reached in self.curve[seed] if reached >= final), None)
            for seed, final in sorted(target.accuracy.items())
            if seed in self.curve
        ]


def summarize(workdir: pathlib.Path, plan: Sequence[tuple[str, int]], seeds: Sequence[int]) -> str:
    """The table as text; also written to `summary.json`.

    Args:
        workdir: of the comparison.
        plan: (arm, its total steps) in the order of the table.
        seeds: of the comparison; those that aren't finished don't count.

    Returns:
        A Markdown table with n in every row, and a line of plain words for each comparison.
    """
    results = [ArmResult.read(workdir, arm, seeds, steps) for arm, steps in plan]
    results = [result for result in results if result.accuracy]
    if not results:
        return "no finished run yet"
    baselines = [result for result in results if result.arm in BASELINES]
    rows = [_row(result, baselines) for result in results]
    write_atomically(workdir / "summary.json", json.dumps(rows, indent=2) + "\n")
    header = ["arm", "accuracy %", "n"]
    header += [f"Δ {baseline.arm} [95 % CI]" for baseline in baselines]
    header += ["steps to default's accuracy", "train s"]
    cells = [[str(row["cells"][name]) for name in header] for row in rows]
    lines = [header, ["---"] * len(header), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    table = "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width, "-" if cell == "---" else " ")
            for cell, width in zip(line, widths, strict=True)
        )
        + " |"
        for line in lines
    )
    return "\n".join([table, "", *_verdicts(results, baselines)])


def _row(result: ArmResult, baselines: Sequence[ArmResult]) -> dict[str, Any]:
    accuracy = list(result.accuracy.values())
    mean = float(np.mean(accuracy))
    sd = float(np.std(accuracy, ddof=1)) if len(accuracy) > 1 else None
    seconds = float(np.mean(list(result.seconds.values())))
    cells = {
        "arm": result.arm,
        "accuracy %": f"{mean:.2f}" + (f" ± {sd:.2f}" if sd is not None else ""),
        "n": len(accuracy),
        "steps to default's accuracy": "",
        "train s": f"{seconds:.1f}",
    }
    differences = {}
    for baseline in baselines:
        difference = result.versus(baseline)
        cells[f"Δ {baseline.arm} [95 % CI]"] = difference or ""
        if difference:
            differences[baseline.arm] = dataclasses.asdict(difference)
        if baseline.arm == "default":
            cells["steps to default's accuracy"] = _steps_cell(result.steps_to(baseline))
    return {
        "arm": result.arm,
        "accuracy_mean": mean,
        "accuracy_sd": sd,
        "n": len(accuracy),
        "accuracy": result.accuracy,
        "differences": differences,
        "seconds": seconds,
        "cells": {name: str(cell) for name, cell in cells.items()},
    }


def _steps_cell(steps: Sequence[int | None]) -> str:
    reached = [step for step in steps if step is not None]
    if not reached:
        return "never"
    some = "" if len(reached) == len(steps) else f" ({len(reached)} of {len(steps)} seeds)"
    return f"{np.mean(reached):.0f}{some}"


def _verdicts(results: Sequence[ArmResult], baselines: Sequence[ArmResult]) -> list[str]:
    """One sentence for each arm against each baseline; a claim only where the interval allows."""
    lines = []
    for result in results:
        for baseline in baselines:
            difference = result.versus(baseline)
            if difference is None or (result.arm in BASELINES and baseline.arm != "default"):
                continue
            against = f"{result.arm} against {baseline.arm}: {difference} points"
            if difference.low is None or difference.high is None or difference.n < 3:
                lines.append(f"{against}, n={difference.n}: too few seeds for a claim (3 needed)")
            elif difference.low > 0:
                lines.append(f"{against}, n={difference.n}: better")
            elif difference.high < 0:
                lines.append(f"{against}, n={difference.n}: worse")
            else:
                lines.append(f"{against}, n={difference.n}: no difference that these seeds show")
    return lines
