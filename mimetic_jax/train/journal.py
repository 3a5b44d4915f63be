"""What is recorded of a group while it trains: metrics of each run, and how to continue them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from mimetic_jax.train.cluster.processes import is_first
from mimetic_jax.train.program import Program
from mimetic_jax.train.record import Origin, Record
from mimetic_jax.train.schedule import plateau_scale
from mimetic_jax.train.store import files
from mimetic_jax.train.store.claim import Provenance
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.tasks.task import Evaluation

OnMetrics = Callable[[Run, Mapping[str, Any]], None]
"""Called with a run and with each line of its metrics.jsonl, when that is written."""
History = dict[str, np.ndarray]
"""Metrics of the steps of a dispatch by name, [K, steps]."""


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a checkpoint holds besides the states of the K runs.

    Attributes:
        provenance: the `Provenance` of each run, as JSON holds it.
        evaluations: (step, means by name of each run) of every test so far.
        window: metrics of the steps since the last log line, each [K, steps]: a stop between two
            log lines must keep what the next line is the mean of.
        finite: whether the loss of each run was finite so far.
    """

    provenance: tuple[Mapping[str, Any], ...]
    seconds: float
    evaluations: tuple[tuple[int, tuple[Mapping[str, Any], ...]], ...]
    window: Mapping[str, Any]
    finite: tuple[bool, ...]


class Journal:
    """The metrics.jsonl of K runs that train together, and the record of their checkpoints.

    Attributes:
        seconds: the time of training so far, of which each run counts its share.
        evaluations, finite: as of `Saved`.
        rates: the highest learning rate of each run's schedule, and the factor of the schedule,
            which a plateau rule lowers; float32 [K, 2].
    """

    def __init__(
        self,
        runs: Sequence[Run],
        provenance: Sequence[Provenance],
        peaks: Sequence[float],
        config: ConfigDict,
        program: Program,
        on_metrics: OnMetrics | None = None,
    ) -> None:
        self._on_metrics = on_metrics
        self.runs, self._provenance, self._program = tuple(runs), tuple(provenance), program
        self._plateau = config.optimizer.plateau
        self.step, self.seconds = 0, 0.0
        self.evaluations: list[tuple[int, tuple[Mapping[str, Any], ...]]] = []
        self.rates = np.array([(peak, 1.0) for peak in peaks], np.float32)
        self.finite = [True] * len(runs)
        self._window: list[History] = []

    def resume(self, saved: Saved, step: int) -> None:
        """Continue from a checkpoint; lines of later steps are dropped."""
        self.step, self.seconds = step, saved.seconds
        self.evaluations, self.finite = list(saved.evaluations), list(saved.finite)
        window = {name: np.asarray(values, np.float32) for name, values in saved.window.items()}
        self._window = [window] if window else []
        self._lower_rates()
        self.keep_lines(step)

    def saved(self) -> dict[str, Any]:
        """Return `Saved` as JSON holds it; the lines that it relies on are on disk when this
        returns."""
        if is_first():
            for run in self.runs:
                files.sync(run.metrics.path)
        window = {name: values.tolist() for name, values in self._joined().items()}
        provenance = tuple(map(dataclasses.asdict, self._provenance))
        evaluations, finite = tuple(self.evaluations), tuple(self.finite)
        return vars(Saved(provenance, self.seconds, evaluations, window, finite))

    @property
    def speed(self) -> float:
        """Examples or tokens per second, of all runs together."""
        per_step = len(self.runs) * self._program.task.per_step
        return self.step * per_step / max(self.seconds, 1e-9)

    def count_steps(self, history: History, seconds: float) -> dict[Run, str]:
        """Add the steps of a dispatch; returns what went wrong in runs that diverge in it."""
        first = self.step
        self.step += history["loss"].shape[1]
        self.seconds += seconds
        self._window.append(history)
        wrong = {}
        for i, run in enumerate(self.runs):
            own = {name: values[i] for name, values in history.items()}
            bad = np.flatnonzero(~np.isfinite(own["loss"] + own["grad_norm"]))
            if self.finite[i] and bad.size:
                self.finite[i] = False
                loss, norm = own["loss"][bad[0]], own["grad_norm"][bad[0]]
                gradient = f" and its gradient {norm}" if np.isfinite(loss) else ""
                wrong[run] = f"the loss is {loss}{gradient} at step {first + int(bad[0])}"
        return wrong

    def lost(self) -> dict[Run, str]:
        """Return the runs whose loss isn't finite any more, which the group's lanes go on
        without."""
        return {
            run: f"the loss was no longer finite before step {self.step}"
            for run, finite in zip(self.runs, self.finite, strict=True)
            if not finite
        }

    def log(self) -> str:
        """Record the means of the steps since the last log line; returns those of all runs."""
        speed = {"examples_per_second": self.speed}
        if share := self._program.share_of_peak:
            speed["mfu"] = self.speed * share
        means = {name: x.mean(1, dtype=np.float64) for name, x in self._joined().items()}
        self._window = []
        for i in self._going():
            values = {name: float(each[i]) for name, each in means.items()}
            peak, factor = self.rates[i]
            values["learning_rate"] = float(factor * self._program.schedule(peak, self.step - 1))
            self._record(i, {**values, **speed, **self._clock()})
        of_finite = {name: float(each[self.finite].mean()) for name, each in means.items()}
        return self._program.task.progress(of_finite)

    def evaluated(
        self, tests: Sequence[Evaluation], averaged: Sequence[Evaluation], *, last: bool = False
    ) -> tuple[str, dict[Run, str]]:
        """Record a test of each run, and of its averaged parameters if there are any.

        Runs are finished by the `last` one, as their `Record` marks. Only once the last checkpoint
        is written: after a kill in between, runs that aren't marked have nothing left to train.

        Returns the test in words, and what went wrong in runs that diverged in the last step.
        """
        self.evaluations.append((self.step, tuple(test.values for test in tests)))
        self._lower_rates()
        wrong = {}
        for i in self._going():
            run, line = self.runs[i], _named("eval", tests[i])
            line |= {**(_named("eval_ema", averaged[i]) if averaged else {}), **self._clock()}
            if last and not np.isfinite(loss := tests[i].values["loss"]):
                wrong[run] = f"after the last step, {self.step}, the test loss is {loss}"
                self.finite[i] = False
            elif not (last and run.finished()):
                record = {"record": self._finished(i, tests[i].count)} if last else {}
                self._record(i, {**line, **record})
        return self._summary(tests, averaged), wrong

    def give_up(self, diverged: Collection[Run]) -> None:
        """Finish runs whose loss isn't finite: trials, which needn't be trained again."""
        for i, (run, provenance) in enumerate(zip(self.runs, self._provenance, strict=True)):
            if run in diverged and not run.finished():
                record = Record.lost(self._program.task.score, Origin.here(), provenance)
                self._record(i, {"record": record.to_json()})

    def _going(self) -> list[int]:
        return [i for i, finite in enumerate(self.finite) if finite]

    def _clock(self) -> dict[str, float]:
        return {"seconds": self.seconds / len(self.runs)}

    def _joined(self) -> History:
        names = self._window[0] if self._window else ()
        return {name: np.concatenate([x[name] for x in self._window], 1) for name in names}

    def _finished(self, i: int, examples: int) -> dict[str, Any]:
        return Record.of(
            self._program.task.score,
            [(step, values[i]) for step, values in self.evaluations],
            Origin.here(),
            self._provenance[i],
            examples=examples,
            **self._program.task.counts(),
            **self._clock(),
        ).to_json()

    def _summary(self, tests: Sequence[Evaluation], averaged: Sequence[Evaluation]) -> str:
        if len(tests) == 1:
            return "; average: ".join(test.text for test in (*tests, *averaged))
        score = self._program.task.score
        values = [score.scale * test.values[score.name] for test in tests]
        return f"{score.label} {np.nanmean(values):.2f} ± {np.nanstd(values):.2f}"

    def _lower_rates(self) -> None:
        if self._plateau:
            for i in range(len(self.runs)):
                losses = [values[i]["loss"] for step, values in self.evaluations if step]
                self.rates[i, 1] = plateau_scale(losses, self._plateau)

    def _record(self, i: int, values: dict[str, Any]) -> None:
        if is_first():
            line = {"step": self.step, **values}
            self.runs[i].metrics.append(line)
            if self._on_metrics is not None:
                self._on_metrics(self.runs[i], line)

    def keep_lines(self, step: int) -> None:
        """Drop the lines of later steps, which are taken again."""
        for run in self.runs if is_first() else ():
            lines = run.metrics.read()  # raises if it is damaged
            kept = [line for line in lines if line["step"] <= step]
            if len(kept) < len(lines):
                run.metrics.rewrite(kept)


def _named(prefix: str, result: Evaluation) -> dict[str, Any]:
    values = {f"{prefix}_{name}": value for name, value in result.values.items()}
    return {**values, f"{prefix}_count": result.count}
