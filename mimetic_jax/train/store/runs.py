"""The folder of a run in a workdir."""

from __future__ import annotations

import dataclasses
from typing import Any

from mimetic_jax.base.errors import InputError
from mimetic_jax.train.record import Record
from mimetic_jax.train.store.lines import Lines
from mimetic_jax.train.store.places import Place


@dataclasses.dataclass(frozen=True)
class Run:
    """An arm with a seed, in `WORKDIR/runs/ARM/SEED`."""

    arm: str
    seed: int
    folder: Place

    @classmethod
    def of(cls, workdir: Place | str, arm: str, seed: int) -> Run:
        return cls(arm, seed, Place.of(workdir) / "runs" / arm / str(seed))

    def __str__(self) -> str:
        return f"{self.arm} seed {self.seed}"

    @property
    def checkpoints(self) -> Place:
        return self.folder / "checkpoints"

    @property
    def metrics(self) -> Lines:
        """metrics.jsonl: training metrics, evaluations, and in the end the run's record."""
        return Lines(self.folder / "metrics.jsonl")

    def evaluations(self) -> list[dict[str, Any]]:
        """The lines of evaluations, in order."""
        return [line for line in self.metrics.read() if "eval_count" in line]

    def finished(self) -> bool:
        """Whether its metrics end in a record."""
        lines = self.metrics.read()
        return bool(lines) and "record" in lines[-1]

    def record(self) -> Record | None:
        """The run's record, if it is finished.

        Raises:
            InputError: it is damaged, or of another run.
        """
        if not self.finished():
            return None
        where = str(self.metrics.place)
        found = Record.from_json(self.metrics.read()[-1]["record"], where)
        if (found.arm, found.seed) != (self.arm, self.seed):
            raise InputError(
                f"{where} is of {found.arm} seed {found.seed}: move it back, a copied run is no "
                "other seed"
            )
        return found
