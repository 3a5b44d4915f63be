"""The results of a workdir, and their table in Markdown."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mimetic_jax.train import rates
from mimetic_jax.train.cluster.processes import is_first
from mimetic_jax.train.config import recorded_arms
from mimetic_jax.train.record import Record
from mimetic_jax.train.statistics import pooled_spread, visible
from mimetic_jax.train.store import files
from mimetic_jax.train.store.claim import Claim, check_fingerprint
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.verdicts import COMPARED, ArmResult, compared, spread_rule


@dataclasses.dataclass(frozen=True, repr=False)
class Results:
    """The finished runs of a comparison, in the order of the table, as which it prints."""

    workdir: AnyPath
    arms: Mapping[str, ArmResult]

    @classmethod
    def of(cls, workdir: AnyPath, claim: Claim) -> Results:
        """Return the results of a workdir, of the arms and seeds of a claim on it, all on its
        data."""
        results, chosen = [], (workdir / rates.FOLDER).exists()
        for arm, config in recorded_arms(claim.config).items():
            runs: dict[int, Record] = {}
            for run in (Run.of(workdir, arm, seed) for seed in claim.config["seeds"]):
                if (record := run.record()) and not record.diverged:
                    data, where = claim.data.get(arm, record.data), f"{run} of workdir {workdir}"
                    check_fingerprint(where, "data", record.data, data)
                    runs[run.seed] = record
            if runs:
                rate = None if chosen else config["optimizer"]["learning_rate"]
                results.append(ArmResult(arm, runs, rate=rate))
        return cls(workdir, {result.arm: result for result in compared(results)})

    def __str__(self) -> str:
        return table(list(self.arms.values()))

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return str(self)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dictionary per run of what its `Record` has, and the paths of its files.

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
            records = list(map(_record, results))
            files.write(self.workdir / "summary.json", json.dumps(records, indent=2) + "\n")
            files.write(self.workdir / "table.md", f"{self}\n")


def table(results: Sequence[ArmResult]) -> str:
    """Return a Markdown table of compared results, n in every row, and `remarks`.

    >>> run = Record(arm="default", seed=0, score="accuracy", value=61.5, seconds=3)
    >>> print(table([ArmResult("default", {0: run})]))
    | arm     | accuracy % | n   | train s |
    | ------- | ---------- | --- | ------- |
    | default | 61.50      | 1   | 3.0     |
    """
    return "\n\n".join([markdown(grid(results)), *remarks(results)])


def grid(results: Sequence[ArmResult]) -> list[tuple[str, ...]]:
    """Return the lines of a table of results, its head first."""
    if not results:
        return []
    head = ("arm", results[0].score.label, "n", *COMPARED, "train s")
    rows = [
        (x.arm, x.mean_and_sd(), str(len(x.reached)), *x.compared(), f"{x.mean_seconds:.1f}")
        for x in results
    ]
    return trimmed(head, rows)


def trimmed(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the lines of a table, whose rows may end early, without columns that have no cell."""
    columns = itertools.zip_longest(head, *rows, fillvalue="")
    return list(zip(*(column for column in columns if any(column[1:])), strict=True))


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a table with its columns aligned, from its head on."""
    if not lines:
        return "no finished run yet"
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    head, *rows = lines
    every = [head, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in every)


def remarks(results: Sequence[ArmResult]) -> list[str]:
    """Return what stands below a table: which spread its intervals have, and which gains it can
    show."""
    rule = spread_rule(results)
    lines = (rule and f"{rule[0]} ({rule[1]}).", results and _shows(results))
    return [line for line in lines if line]


def _shows(results: Sequence[ArmResult]) -> str:
    """Which gains the results of a table show, in a sentence; empty if nothing is compared."""
    spread = pooled_spread(result.reached for result in results)
    sd, score = spread.sd if spread else results[0].sd or 0.0, results[0].score
    seeds = max(len(result.reached) for result in results)
    tests = max(result.images for result in results)
    share = min(float(np.mean([result.mean for result in results])) / score.scale, 1.0)
    return visible(score, sd, seeds, len(results), tests, share)


def _record(result: ArmResult) -> dict[str, Any]:
    score, by_arm = result.score, {result.baselines[x]: y for x, y in result.differences.items()}
    return {
        "arm": result.arm,
        f"{score.name}_mean": result.mean,
        f"{score.name}_sd": result.sd,
        "n": len(result.reached),
        score.name: result.reached,
        "seconds": result.mean_seconds,
        "differences": {arm: dataclasses.asdict(difference) for arm, difference in by_arm.items()},
    }
