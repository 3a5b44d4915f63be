"""Groups: K ≥ 1 runs that train together, because they share a program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mimetic_jax.base.typed import from_json
from mimetic_jax.data.feed.feed import Session
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.cluster.processes import wait_for_all
from mimetic_jax.train.journal import History, Journal, OnMetrics, Saved
from mimetic_jax.train.start import initial_state, provenance_of
from mimetic_jax.train.state import TrainState, order_key, stream
from mimetic_jax.train.store.checkpoint import Checkpoints
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.tasks.task import Evaluation
from mimetic_jax.train.together import together

Say = Callable[[str], None]
"""Prints a line."""


class Group:
    """The states of K runs on the devices, their journal and their checkpoints.

    Each run has a lane from first step to last. A diverged run keeps its lane, so shapes and the
    others' results don't change.
    `config` is that of the first run's arm; only what a group shares is read of it.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        arms: Mapping[str, Arm],
        say: Say,
        on_metrics: OnMetrics | None = None,
    ) -> None:
        first = arms[runs[0].arm]
        ours = [provenance_of(arms[run.arm], run.seed) for run in runs]
        self.config, self.program, self._data = (
            first.config,
            first.program,
            first.on_device(runs[0].seed),
        )
        self._together = together(self.program, len(runs))
        peaks = [arms[run.arm].peak for run in runs]
        self.journal = Journal(runs, ours, peaks, self.config, self.program, on_metrics)
        self._keys = self._together.keys([run.seed for run in runs])
        wait_for_all("run folder")  # process 0 makes it
        self.checkpoints = Checkpoints(runs[0].checkpoints, self.config.keep_checkpoints)
        if restored := self.checkpoints.restore(self._together.shapes):
            self._states, record = restored
            where = f"a checkpoint in {runs[0].folder}"
            saved = from_json(Saved, record, where)
            for provenance, theirs in zip(ours, saved.provenance, strict=True):
                provenance.check(theirs, where, say)
            step = int(np.ravel(self._states.step)[0])
            self.journal.resume(saved, step)
            say(f"continues at step {step}")
        else:
            self.journal.keep_lines(-1)
            starts = (initial_state(arms[run.arm], run.seed, say) for run in runs)
            self._states = self._together.stack(starts)

    def steps(self, arrays: Any, count: int) -> Any:
        """Take steps in one dispatch, 0 to compile; the metrics are on their way."""
        rates = self.journal.rates
        self._states, metrics = self._together.run_steps(
            self._states, arrays, self._keys, count, rates
        )
        return metrics

    def history(self, metrics: Any, count: int) -> History:
        """Fetch the metrics of a dispatch of so many steps to the host, [K, steps]."""
        host = jax.device_get(metrics)
        return {name: np.atleast_2d(values)[:, :count] for name, values in host.items()}

    def evaluate(self) -> tuple[list[Evaluation], list[Evaluation]]:
        """Test each run, and its averaged parameters if there are any."""
        states = self._states
        tests = self._together.evaluate(states.variables, self._data)
        if states.ema is None:
            return tests, []
        return tests, self._together.evaluate(states.ema, self._data)

    def session(self) -> Session:
        """Return the data of the steps that are left."""
        feed, journal = self.program.feed, self.journal
        key = order_key(stream(journal.runs[0].seed, "data"))
        return feed.session(self._data, key, journal.step, self.program.steps)

    def save(self) -> None:
        """Start writing a checkpoint."""
        self.checkpoints.save(self._states, self.journal.saved(), self.journal.step)


def restored(
    runs: Sequence[Run], arms: Mapping[str, Arm]
) -> Iterator[tuple[Run, TrainState | None]]:
    """Yield each run with the state of its newest checkpoint, None without any.

    A checkpoint is read once for all runs of its group.
    """
    for group in dict.fromkeys(run.group for run in runs):
        wanted = [run for run in group if run in runs]
        states: Sequence[TrainState | None] = [None] * len(group)
        if group[0].checkpoints.exists():
            # A group shares its program, and the configuration may lack arms of it.
            program = together(arms[wanted[0].arm].program, len(group))
            with contextlib.closing(Checkpoints(group[0].checkpoints)) as checkpoints:
                if newest := checkpoints.restore(program.shapes):
                    states = [*program.unstack(newest[0])]
        for run, state in zip(group, states, strict=True):
            if run in wanted:
                yield run, state
