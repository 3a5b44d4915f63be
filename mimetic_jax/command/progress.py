"""Show the metrics of a training run: a bar in a terminal, and files for TensorBoard and wandb."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tqdm import tqdm

from mimetic_jax.base.extras import need
from mimetic_jax.base.table import duration
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run

_ENOUGH = 60.0
"""Seconds of training by which the rest is estimated, and from which on it is reported."""


class Progress:
    """A bar of the steps that the runs of a comparison have taken, if stderr is a terminal.

    Printed lines stand above it. One says how long the training takes, if that is long.
    """

    def __init__(self) -> None:
        self._bar: Any = None
        self._taken: dict[Run, int] = {}
        self._began: set[Run] = set()
        self._at = 0.0  # the time of the last line
        self._measured = (0.0, 0)  # seconds and steps, without compilations and starts
        self._total, self._least, self._said = 0, "", False

    def say(self, line: str) -> None:
        """Print a line; for `Comparison`."""
        tqdm.write(line)

    def moved(self, run: Run, line: Mapping[str, Any]) -> None:
        """Take a line that a run has recorded; for `Comparison`."""
        if self._bar is not None and run in self._taken:  # others of its group may go on, too
            self._bar.set_description_str(str(run), refresh=False)
            if "loss" in line:
                self._bar.set_postfix_str(f"loss {line['loss']:.3f}", refresh=False)
            steps = line["step"] - self._taken[run]
            self._bar.update(steps)
            self._taken[run] = line["step"]
            self._measure(run, steps)

    def _measure(self, run: Run, steps: int) -> None:
        """Say once how long the rest takes, by the steps so far and the tests between them."""
        now, (seconds, before) = time.perf_counter(), self._measured
        if run in self._began:
            self._measured = seconds, before = seconds + now - self._at, before + steps
        self._began.add(run)
        self._at = now
        to_come = self._total - sum(self._taken.values())
        if not self._said and seconds > _ENOUGH and before:
            self._said = True
            if (left := to_come * seconds / before) > _ENOUGH:
                self.say(f"{self._least}about {duration(left)} for the {to_come:,} steps to come")

    @contextlib.contextmanager
    def of(self, stage: Comparison, workdir: AnyPath, later: int = 0) -> Iterator[None]:
        """Draw the bar of a stage of a comparison inside; what is finished in the workdir counts as
        done, and `later` steps come after a stage of trials."""
        steps = {name: arm.program.steps for name, arm in stage.arms.items()}
        runs = stage.runs(workdir)
        self._taken = {run: steps[run.arm] * run.finished() for run in runs}
        total, done = sum(steps[run.arm] for run in runs), sum(self._taken.values())
        trials = stage.tolerate_divergence
        self._total, self._least = total + later * trials, "at least " * trials
        self._said = False
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
        """Take a line that a run has recorded; for `Comparison`."""
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
