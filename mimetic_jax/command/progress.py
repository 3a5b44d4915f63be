"""Show the metrics of a training: a bar in a terminal, and files for TensorBoard and wandb."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tqdm import tqdm

from mimetic_jax.base.extras import need
from mimetic_jax.base.times import duration
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run

_ENOUGH = 10.0
"""Seconds of training by which the rest is estimated."""

_LONG = 600.0
"""Seconds from which it is told."""


class Progress:
    """A bar of the steps that the runs of a comparison have taken, if stderr is a terminal.

    Printed lines stand above it. One says how long the training takes, if that is long.
    """

    def __init__(self) -> None:
        self._bar: Any = None
        self._taken: dict[Run, int] = {}
        self._total = 0
        self._began: tuple[float, int] | None = None

    def say(self, line: str) -> None:
        """Print a line; for `Comparison`."""
        tqdm.write(line)

    def moved(self, run: Run, line: Mapping[str, Any]) -> None:
        """A run has recorded a line; for `Comparison`."""
        if self._bar is not None:
            self._bar.set_description_str(str(run), refresh=False)
            if "loss" in line:
                self._bar.set_postfix_str(f"loss {line['loss']:.3f}", refresh=False)
            self._bar.update(line["step"] - self._taken[run])
            self._taken[run] = line["step"]
            if line["step"]:
                self._tell(time.perf_counter(), sum(self._taken.values()))

    def _tell(self, now: float, taken: int) -> None:
        """Say once how long the rest takes, by the first steps that were compiled before."""
        if self._began is None:
            self._began = now, taken
        elif self._total and (seconds := now - self._began[0]) > _ENOUGH:
            left = (self._total - taken) * seconds / max(taken - self._began[1], 1)
            if left > _LONG:
                self.say(f"about {duration(left)} for the {self._total - taken:,} steps to come")
            self._total = 0

    @contextlib.contextmanager
    def of(self, comparison: Comparison, workdir: AnyPath) -> Iterator[None]:
        """Draw the bar inside; what is finished in the workdir counts as done."""
        steps = {name: arm.program.steps for name, arm in comparison.arms.items()}
        runs = comparison.runs(workdir)
        self._taken = {run: steps[run.arm] * run.finished() for run in runs}
        total, done = sum(steps[run.arm] for run in runs), sum(self._taken.values())
        self._total, self._began = total, None
        with tqdm(total=total, initial=done, unit="step", disable=None, leave=False) as self._bar:
            yield
        self._bar = None


class Events:
    """Files of the numbers of metrics.jsonl in DIR/ARM/SEED; all of them once it is closed.

    DIR is local or in a bucket.
    """

    def __init__(self, folder: str) -> None:
        need("--tensorboard", "tensorboard")
        self._folder = folder
        self._writers: dict[Run, Any] = {}

    def written(self, run: Run, line: Mapping[str, Any]) -> None:
        """A run has recorded a line; for `Comparison`."""
        from tensorboardX import SummaryWriter

        lines: Sequence[Mapping[str, Any]] = [line]
        if run not in self._writers:
            # A killed process wrote steps that are taken again, and lost others: its points are
            # dropped, and metrics.jsonl has those that still count, this line among them.
            lines = run.metrics.read() or lines
            self._writers[run] = SummaryWriter(
                f"{self._folder}/{run.arm}/{run.seed}",
                flush_secs=10,
                purge_step=lines[0]["step"],
            )
        for values in lines:
            for name, value in values.items():
                if isinstance(value, int | float) and name != "step":
                    self._writers[run].add_scalar(name, value, values["step"])

    def close(self) -> None:
        """Write what is left."""
        for writer in self._writers.values():
            writer.close()
