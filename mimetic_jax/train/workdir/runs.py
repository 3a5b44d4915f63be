"""A run's folder in the workdir, and its records."""

from __future__ import annotations

import dataclasses
from typing import Any

from mimetic_jax.train.workdir.metrics import MetricsFile
from mimetic_jax.train.workdir.paths import AnyPath


@dataclasses.dataclass(frozen=True)
class Run:
    """An arm with a seed, in `WORKDIR/runs/ARM/SEED`."""

    arm: str
    seed: int
    directory: AnyPath

    @classmethod
    def of(cls, workdir: AnyPath, arm: str, seed: int) -> Run:
        return cls(arm, seed, workdir / "runs" / arm / str(seed))

    @property
    def metrics(self) -> MetricsFile:
        return MetricsFile(self.directory / "metrics.jsonl")

    def evaluations(self) -> list[dict[str, Any]]:
        """The records of evaluations, in order."""
        return [record for record in self.metrics.read() if "eval_count" in record]

    def finished(self) -> bool:
        return any("finished" in record for record in self.evaluations())
