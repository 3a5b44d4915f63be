"""The folder of a run in a workdir, and the runs that it trains with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import converted
from mimetic_jax.train.record import Record
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import AnyPath, Lines, path_of


@dataclasses.dataclass(frozen=True)
class Run:
    """An arm with a seed, in `WORKDIR/runs/ARM/SEED`."""

    arm: str
    seed: int
    folder: AnyPath

    @classmethod
    def of(cls, workdir: AnyPath | str, arm: str, seed: int) -> Run:
        return cls(arm, seed, path_of(workdir) / "runs" / arm / str(seed))

    def __str__(self) -> str:
        return f"{self.arm} seed {self.seed}"

    @property
    def group(self) -> tuple[Run, ...]:
        """The runs of its group, itself included. The first run's folder has their checkpoints."""
        path = self.folder / "group.json"
        if not path.exists():
            return (self,)
        try:
            listed = converted("runs", tuple[tuple[str, int], ...], json.loads(files.read(path)))
        except (ValueError, RecursionError):  # an InputError too
            raise files.damaged(path, "no list of runs") from None
        workdir = self.folder.parent.parent.parent
        runs = tuple(Run.of(workdir, arm, seed) for arm, seed in listed)
        if self not in runs:
            raise InputError(f"{path} doesn't name {self}: move it back where it was trained")
        return runs

    @property
    def began(self) -> bool:
        """Whether its training has started: its folder has a group.json or checkpoints."""
        return (self.folder / "group.json").exists() or (self.folder / "checkpoints").exists()

    @property
    def checkpoints(self) -> AnyPath:
        """The folder of its group's checkpoints."""
        return self.group[0].folder / "checkpoints"

    @property
    def metrics(self) -> Lines:
        """metrics.jsonl: training metrics, evaluations, and in the end the run's record."""
        return Lines(self.folder / "metrics.jsonl")

    def finished(self) -> bool:
        """Tell whether its metrics end in a record."""
        lines = self.metrics.read()
        return bool(lines) and "record" in lines[-1]

    def record(self) -> Record | None:
        """Return the run's record, if it is finished."""
        if not self.finished():
            return None
        where = str(self.metrics.path)
        record = Record.from_json(self.metrics.read()[-1]["record"], where)
        if (record.arm, record.seed) != (self.arm, self.seed):
            raise InputError(
                f"{where} is of {record.arm} seed {record.seed}. Move it back: a copied run is not "
                "another seed."
            )
        return record


def write_group(runs: Sequence[Run]) -> None:
    """Record that these runs train together, for good; one that trains alone needs no record."""
    if len(runs) > 1:
        text = json.dumps([[run.arm, run.seed] for run in runs])
        for run in runs:
            files.write(run.folder / "group.json", f"{text}\n")
