"""The table of results: what each arm reached, and what that says about its scheme."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mimetic_jax.train.cluster.processes import is_first
from mimetic_jax.train.config import recorded_arms
from mimetic_jax.train.record import (
    ACCURACY,
    CONTROLS,
    NOISE,
    PERMUTED,
    SCORES,
    Record,
    Score,
)
from mimetic_jax.train.sensitivity import visible
from mimetic_jax.train.statistics import (
    ENOUGH,
    Difference,
    Spreads,
    by_choice,
    paired_difference,
    pooled_spread,
)
from mimetic_jax.train.store import files
from mimetic_jax.train.store.claim import Claim, check_fingerprint
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run

DEFAULT = "default"
"""The arm that others are compared with, if a comparison has it."""

POSITIONS = "sincos"
"""The default with sin-cos positions: what a gain over the default's learned positions leaves."""

BASELINES = (DEFAULT, POSITIONS, *CONTROLS)
"""What an arm is compared with: these two arms and its own controls, if a table has them."""

COMPARED = (*(f"Δ {name} [95 % CI]" for name in BASELINES), "verdict")
"""Columns of every table: an arm's differences, and what they say."""


@dataclasses.dataclass(frozen=True)
class ArmResult:
    """The finished runs of an arm, by seed.

    Attributes:
        row: the arm's row in a figure of several comparisons.
        differences: the differences from those of `BASELINES` that it was `compared` with.
    """

    arm: str
    runs: Mapping[int, Record]
    row: str = ""
    differences: Mapping[str, Difference] = dataclasses.field(default_factory=dict)

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

    def shown(self) -> str:
        """Mean ± sd, with the digits of the score."""
        form = f".{self.score.digits}f"
        return f"{self.mean:{form}}" + (f" ± {self.sd:{form}}" if self.sd is not None else "")

    def compared(self) -> tuple[str, ...]:
        """Its cells of the columns `COMPARED`."""
        differences, form = self.differences, f".{self.score.digits}f"
        deltas = (
            f"{differences[name]:{form}}" if name in differences else "" for name in BASELINES
        )
        return *deltas, self.verdict

    @property
    def verdict(self) -> str:
        """What its differences say, in a few words; empty if there are none."""
        differences = self.differences
        gain = differences.get(DEFAULT) or differences.get(POSITIONS)
        return verdict(gain, differences.get(NOISE), self.score.higher, differences.get(PERMUTED))

    @property
    def mean_seconds(self) -> float:
        return float(np.mean([record.seconds for record in self.runs.values()]))

    @property
    def baselines(self) -> dict[str, str]:
        """The arms that it is compared with, by the names of `BASELINES`."""
        arms = {DEFAULT: DEFAULT}
        if self.arm != DEFAULT:
            arms[POSITIONS] = POSITIONS
        return arms | {kind: f"{before}{self.arm}" for kind, before in CONTROLS.items()}

    def versus(self, other: ArmResult, spreads: Spreads) -> Difference | None:
        """The difference to another arm, by the spreads of a table and the choice of the test
        images; None without a seed that both have."""
        if self.arm == other.arm:
            return None
        shared = sorted(self.reached.keys() & other.reached.keys())
        if not shared:
            return None
        ours, theirs = ([result.reached[seed] for seed in shared] for result in (self, other))
        return paired_difference(ours, theirs, spreads.of(self.arm, other.arm), self._choice(other))

    def _choice(self, other: ArmResult) -> float:
        """The variance of a difference by the choice of the test images, which all seeds share; of
        a text nothing, as it has so many tokens."""
        if self.score is not ACCURACY:
            return 0.0
        shares = [result.mean / self.score.scale for result in (self, other)]
        images = max(run.examples for run in self.runs.values())
        return self.score.scale**2 * by_choice(shares, images)

    def steps_to(self, target: ArmResult) -> list[int | None]:
        """First evaluated step that reaches the target's last score with the same seed."""
        return [
            self._step_to(seed, final)
            for seed, final in sorted(target.reached.items())
            if seed in self.runs
        ]

    def past_its_best(self) -> bool:
        """Whether the mean score of its seeds is best before their last test."""
        curves = [dict(run.curve) for run in self.runs.values()]
        steps = sorted(set.intersection(*map(set, curves)))
        means = [float(np.mean([curve[step] for curve in curves])) for step in steps]
        best = max if self.score.higher else min
        return bool(means) and means[-1] != best(means)

    def _step_to(self, seed: int, target: float) -> int | None:
        sign = 1 if self.score.higher else -1
        curve = self.runs[seed].curve
        return next((step for step, value in curve if sign * (value - target) >= 0), None)


@dataclasses.dataclass(frozen=True, repr=False)
class Results:
    """The finished runs of a comparison, in the order of the table, as which it prints."""

    workdir: AnyPath
    arms: Mapping[str, ArmResult]

    @classmethod
    def of(cls, workdir: AnyPath, claim: Claim) -> Results:
        """The results of a workdir, of the arms and seeds of a claim on it, all on its data."""
        results = []
        for arm in recorded_arms(claim.config):
            runs: dict[int, Record] = {}
            for run in (Run.of(workdir, arm, seed) for seed in claim.config["seeds"]):
                if (record := run.record()) and not record.diverged:
                    data, where = claim.data.get(arm, record.data), f"{run} of workdir {workdir}"
                    check_fingerprint(where, "data", record.data, data)
                    runs[run.seed] = record
            if runs:
                results.append(ArmResult(arm, runs))
        return cls(workdir, {result.arm: result for result in compared(results)})

    def __str__(self) -> str:
        return table(list(self.arms.values()))

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return str(self)

    def to_dicts(self) -> list[dict[str, Any]]:
        """A dictionary per run of what its `Record` has, and the paths of its files.

        For `pandas.DataFrame`, `polars.DataFrame` and the like: every value is a number, a text or
        None. The curve is left out, `arms[NAME].runs[SEED].curve` has it.
        """
        rows = []
        for record in (run for arm in self.arms.values() for run in arm.runs.values()):
            fields = dataclasses.asdict(record)
            del fields["curve"]
            first = {name: fields.pop(name) for name in ("arm", "seed", "score", "value")}
            run = Run.of(self.workdir, record.arm, record.seed)
            where = {"metrics": str(run.metrics.path), "checkpoints": str(run.checkpoints)}
            rows.append({**first, **fields, **where})
        return rows

    def write(self) -> None:
        """Write `table.md`, and the numbers of every seed as `summary.json`; may raise OSError."""
        results = list(self.arms.values())
        if is_first() and results:
            records = [_record(result, self.arms) for result in results]
            files.write(self.workdir / "summary.json", json.dumps(records, indent=2) + "\n")
            files.write(self.workdir / "table.md", f"{self}\n")


def compared(results: Sequence[ArmResult]) -> list[ArmResult]:
    """Arms with their differences from the baselines among them, by the spreads of them all."""
    arms = {result.arm: result for result in results}
    spreads = Spreads({result.arm: result.reached for result in results})

    def differences(result: ArmResult) -> Iterator[tuple[str, Difference]]:
        for name, arm in result.baselines.items():
            other = arms.get(arm)
            if other and (difference := result.versus(other, spreads)):
                yield name, difference

    return [
        dataclasses.replace(result, differences=dict(differences(result))) for result in results
    ]


def verdict(
    gain: Difference | None,
    over_noise: Difference | None,
    higher: bool,
    over_permuted: Difference | None = None,
) -> str:
    """What the differences of an arm say of it: those over the default, over noise of the same
    norms, and over its own channels in random order, None of what wasn't trained.

    >>> above, below = Difference(1.5, 1, 2, 3), Difference(-1.5, -2, -1, 3)
    >>> around = Difference(0, -1, 1, 3)
    >>> verdict(above, above, higher=True), verdict(above, around, higher=True)
    ('gain over noise', 'gain; structure not shown')
    >>> verdict(above, below, higher=True), verdict(around, above, higher=True)
    ('worse than its noise', 'undecided')
    >>> verdict(above, None, higher=True), verdict(None, above, higher=False)
    ('better', 'worse than its noise')
    >>> verdict(above, above, True, above), verdict(above, above, True, around)
    ('gain by alignment', 'gain over noise')
    >>> verdict(Difference(1, 0.5, 2, 2), None, higher=True), verdict(None, None, higher=True)
    ('undecided', '')
    >>> verdict(Difference(-9, -20, 2, 3, few_examples=True), around, higher=True)
    'undecided: few test images'
    """
    known = [difference for difference in (gain, over_noise) if difference]
    if not known:
        return ""
    if min(difference.n for difference in known) < ENOUGH:
        return "undecided"
    undecided = "undecided: few test images" if known[0].few_examples else "undecided"
    side, structure = (
        difference.side(higher) if difference else None for difference in (gain, over_noise)
    )
    if side == -1:
        return "worse"
    if structure == -1:
        return "worse than its noise"
    if side is None or structure is None:
        return "better" if 1 in (side, structure) else undecided
    if side == 0:
        return undecided
    if not structure:
        return "gain; structure not shown"
    aligned = over_permuted and over_permuted.n >= ENOUGH and over_permuted.side(higher) == 1
    return "gain by alignment" if aligned else "gain over noise"


def table(results: Sequence[ArmResult]) -> str:
    """A Markdown table of compared results, n in every row, and which gains they can show.

    >>> run = Record(
    ...     arm="default", seed=0, score="accuracy", value=61.5, curve=[(10, 61.5)], seconds=3
    ... )
    >>> print(table([ArmResult("default", {0: run})]))
    | arm     | accuracy % | n   | steps to default's score | train s |
    | ------- | ---------- | --- | ------------------------ | ------- |
    | default | 61.50      | 1   | 10                       | 3.0     |
    """
    text = markdown(grid(results))
    return f"{text}\n\n{sentence}" if (sentence := shows(results)) else text


def grid(results: Sequence[ArmResult]) -> list[tuple[str, ...]]:
    """The lines of a table of results, its head first.

    The steps to the default's score are left out if the default is past its best: others then pass
    that score on their way up.
    """
    if not results:
        return []
    score = results[0].score
    columns = {
        "arm": [result.arm for result in results],
        score.label: [result.shown() for result in results],
        "n": [str(len(result.reached)) for result in results],
        **dict(
            zip(COMPARED, zip(*(result.compared() for result in results), strict=True), strict=True)
        ),
    }
    default = next((result for result in results if result.arm == DEFAULT), None)
    if default and not default.past_its_best():
        columns["steps to default's score"] = [
            mean_step(result.steps_to(default)) for result in results
        ]
    columns["train s"] = [f"{result.mean_seconds:.1f}" for result in results]
    return trimmed(list(columns), zip(*columns.values(), strict=True))


def trimmed(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """The lines of a table, whose rows may end early, without columns that have no cell."""
    columns = itertools.zip_longest(head, *rows, fillvalue="")
    return list(zip(*(column for column in columns if any(column[1:])), strict=True))


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table with its columns aligned, from its head on."""
    if not lines:
        return "no finished run yet"
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    head, *rows = lines
    every = [head, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in every)


def shows(results: Sequence[ArmResult]) -> str:
    """Which gains the results of a table show, in a sentence; empty if nothing is compared."""
    if not results:
        return ""
    spread = pooled_spread(result.reached for result in results)
    sd, score = spread.sd if spread else results[0].sd or 0.0, results[0].score
    seeds = max(len(result.reached) for result in results)
    tests = max(run.examples for result in results for run in result.runs.values())
    share = min(float(np.mean([result.mean for result in results])) / score.scale, 1.0)
    return visible(score, sd, seeds, len(results), tests, share)


def _record(result: ArmResult, arms: Mapping[str, ArmResult]) -> dict[str, Any]:
    score, by_arm = result.score, {result.baselines[x]: y for x, y in result.differences.items()}
    return {
        "arm": result.arm,
        f"{score.name}_mean": result.mean,
        f"{score.name}_sd": result.sd,
        "n": len(result.reached),
        score.name: result.reached,
        "seconds": result.mean_seconds,
        "differences": {arm: dataclasses.asdict(difference) for arm, difference in by_arm.items()},
        "steps_to": {arm: result.steps_to(arms[arm]) for arm in by_arm},
    }


def mean_step(steps: Sequence[int | None]) -> str:
    """The mean step of those that got there."""
    reached = [step for step in steps if step is not None]
    if not reached:
        return "never"
    some = "" if len(reached) == len(steps) else f" ({len(reached)} of {len(steps)} seeds)"
    return f"{np.mean(reached):.0f}{some}"
