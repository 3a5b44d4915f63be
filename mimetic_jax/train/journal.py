"""Journals of runs while they train: evaluations, metrics, checkpoints, and when each is due."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import from_json
from mimetic_jax.train.cluster.processes import is_first, wait_for_all
from mimetic_jax.train.program import Program
from mimetic_jax.train.progress import Say
from mimetic_jax.train.record import Origin, Record
from mimetic_jax.train.schedule import plateau_scale
from mimetic_jax.train.state import TrainState, order_key, stream
from mimetic_jax.train.store.checkpoint import Checkpoints
from mimetic_jax.train.store.claim import Made
from mimetic_jax.train.store.places import Place
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.tasks.task import Evaluation

History = dict[str, np.ndarray]
"""Metrics of the steps of a dispatch by name, [runs, steps]."""

Tested = tuple[Evaluation, Evaluation | None]
"""A test of a run's parameters, and of their average where there is one."""


class Diverged(InputError):
    """A run's loss is no longer finite: training diverges with these settings."""


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a checkpoint holds besides the state.

    Attributes:
        made: see `Made`.
        seconds: trained.
        evaluations: (step, means by name) of every test so far; of members, lists of means.
        window: metrics of the steps since the last log line.
    """

    made: Mapping[str, Any]
    seconds: float
    evaluations: tuple[tuple[int, Mapping[str, Any]], ...]
    window: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Journal(abc.ABC):
    """The journal of one run, or of members of a population that are kept together.

    Attributes:
        seeds: of its runs.
        step: steps taken by each of them.
        seconds: of training so far. Groups that train at once count their share of a dispatch, so
            that all of them add up to the time taken.
        rate_scale: the factor of the learning rate, which a plateau rule lowers.
        evaluations: (step, means by name) of every test so far.

    Args:
        label: of the runs, for messages.
        seeds: of the runs.
        folder: of the checkpoints' folder.
        made: the code, config and data that made the checkpoints.
        config: of the arm, checked.
        program: of the configuration.
        say: prints a line of progress.
    """

    def __init__(
        self,
        label: str,
        seeds: Sequence[int],
        folder: Place,
        made: Made,
        config: ConfigDict,
        program: Program,
        say: Say,
    ) -> None:
        self.label, self.seeds, self.folder, self.say = label, list(seeds), folder, say
        self._made, self._config, self._program = made, config, program
        self.step, self.seconds, self.rate_scale = 0, 0.0, 1.0
        self.evaluations: list[tuple[int, Mapping[str, Any]]] = []
        wait_for_all("run folder")  # process 0 makes it
        self._checkpoints = Checkpoints(folder / "checkpoints", config.keep_checkpoints, self._best)
        per_epoch = program.feed.steps_per_epoch
        self._eval_every = config.eval.every or (
            max(1, round(config.eval.every_epochs * per_epoch)) if config.eval.every_epochs else 0
        )

    def start(self) -> TrainState:
        """The newest checkpoint, else the initial state."""
        restored = self._checkpoints.restore(self._shapes())
        if restored is None:
            self._begin()
            return self._initial()
        state, record = restored
        where = f"a checkpoint in {self.folder}"
        saved = from_json(Saved, record, where)
        self._made.check(saved.made, where, self.say)
        self.step = int(np.asarray(state.step).reshape(-1)[0])
        self.seconds, self.evaluations = saved.seconds, list(saved.evaluations)
        self._resume(saved)
        self.say(f"continues at step {self.step}")
        return state

    def close(self) -> None:
        """Wait for the checkpoints, and release the folder."""
        self._checkpoints.close()

    @property
    def ended(self) -> bool:
        """Whether the last step is taken."""
        return self.step >= self._program.steps

    @property
    def next_due(self) -> int:
        """The next step at which a log line, an evaluation or a checkpoint is due, or the last."""
        cadences = (self._config.log_every, self._eval_every, self._config.checkpoint_every)
        return next_due(self.step, self._program.steps, cadences)

    @property
    def log_due(self) -> bool:
        return self.ended or self._due(self._config.log_every)

    @property
    def evaluation_due(self) -> bool:
        """Whether to test at this step; `finish` records the test of the last one."""
        return not self.ended and (self.step == 0 or self._due(self._eval_every))

    @property
    def checkpoint_due(self) -> bool:
        return self.ended or self._due(self._config.checkpoint_every)

    @property
    def speed(self) -> float:
        """Examples or tokens per second, of all runs that train at once."""
        per_step = len(self.seeds) * self._program.task.per_step
        return self.step * per_step / max(self.seconds, 1e-9)

    @abc.abstractmethod
    def count(self, history: History, seconds: float) -> None:
        """Record the steps of a dispatch.

        Args:
            history: their metrics.
            seconds: of the dispatch, this journal's share.

        Raises:
            Diverged: if the loss of a run isn't finite.
        """

    @abc.abstractmethod
    def log(self) -> str:
        """The means of the steps since the last log line, in words."""

    @abc.abstractmethod
    def evaluated(self, tested: Sequence[Tested]) -> None:
        """Record a test of each run."""

    @abc.abstractmethod
    def finish(self, tested: Sequence[Tested], state: Callable[[], TrainState]) -> None:
        """Record the last test and the end; only once the last checkpoint is written.

        Args:
            tested: of each run.
            state: gives the last state.
        """

    def save(self, state: TrainState) -> None:
        """Start writing a checkpoint."""
        record = {
            "made": self._made.to_json(),
            "seconds": self.seconds,
            "evaluations": self.evaluations,
            **self._extra(),
        }
        self._checkpoints.save(state, record, self.step)

    def wait(self) -> None:
        """Return once the checkpoints are written."""
        self._checkpoints.wait()

    @abc.abstractmethod
    def _shapes(self) -> TrainState:
        """The shapes and shardings of the state."""

    @abc.abstractmethod
    def _initial(self) -> TrainState:
        """The state before the first step."""

    def _begin(self) -> None:  # noqa: B027
        """Prepare files for a first step."""

    def _resume(self, saved: Saved) -> None:  # noqa: B027
        """Prepare files to continue."""

    def _extra(self) -> dict[str, Any]:
        """More of `Saved`."""
        return {}

    def _goodness(self, values: Mapping[str, Any]) -> float:
        return self._program.task.score.goodness(values)

    def _best(self, steps: Sequence[int]) -> list[int]:
        """The steps with the best evaluations, of `keep_best`."""
        if not self._config.keep_best:
            return []
        scores = {step: self._goodness(values) for step, values in self.evaluations}
        best_first = sorted(scores.keys() & set(steps), key=lambda step: (-scores[step], step))
        return best_first[: self._config.keep_best]

    def _due(self, every: int) -> bool:
        return bool(every) and self.step % every == 0

    def _at(self) -> str:
        return f"step {self.step:>6}/{self._program.steps}"


class RunJournal(Journal):
    """The journal of a run, in a folder of its own.

    Args:
        run: which run.
        initial: the state before the first step.
    """

    def __init__(
        self,
        run: Run,
        made: Made,
        config: ConfigDict,
        program: Program,
        say: Say,
        initial: Callable[[], TrainState],
    ) -> None:
        super().__init__(str(run), [run.seed], run.folder, made, config, program, say)
        self.run, self._initial_state = run, initial
        self._metrics = run.metrics
        self._window: list[History] = []
        self._writer: Any = _tensorboard(run) if config.tensorboard and is_first() else None

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._writer:
                self._writer.close()

    def count(self, history: History, seconds: float) -> None:
        own = {name: values[0] for name, values in history.items()}
        first, self.step = self.step, self.step + len(own["loss"])
        self.seconds += seconds
        self._window.append(own)
        bad = np.flatnonzero(~np.isfinite(own["loss"] + own["grad_norm"]))
        if bad.size:
            step = first + int(bad[0])
            raise Diverged(
                f"{self.label}: {_wrong(own, bad[0])} at step {step}{self._which(step)}; "
                f"checkpoints up to step {first} are kept: lower the learning rate or set "
                "optimizer.clip"
            )

    def log(self) -> str:
        means, self._window = _means(self._window), []
        rate = self._program.schedule(self.step - 1) * jnp.float32(self.rate_scale)
        self._record(
            {
                **means,
                "learning_rate": float(rate),
                "examples_per_second": self.speed,
                "seconds": self.seconds,
            }
        )
        return f"{self._at()}  {self._program.task.progress(means)}"

    def evaluated(self, tested: Sequence[Tested]) -> None:
        self._record(self._evaluation(*tested[0]))

    def finish(self, tested: Sequence[Tested], state: Callable[[], TrainState]) -> None:
        """Record the last test, and the run's record, which marks it as finished.

        Raises:
            Diverged: if the loss isn't finite, as after a last step that made the weights so.
        """
        if not np.isfinite(loss := tested[0][0].values["loss"]):
            raise Diverged(
                f"{self.label}: after the last step, {self.step}, the test loss is {loss}: lower "
                "the learning rate or set optimizer.clip"
            )
        line, task = self._evaluation(*tested[0]), self._program.task
        if not is_first():
            return
        record = Record.of(
            task.score,
            self.evaluations,
            Origin.here(),
            arm=self.run.arm,
            seed=self.run.seed,
            examples=tested[0][0].count,
            seconds=self.seconds,
            data=self._made.data,
            source=self._made.source,
        )
        self._record({**line, "record": record.to_json()})

    def save(self, state: TrainState) -> None:
        if is_first():
            self._metrics.place.sync()  # the checkpoint relies on its lines
        super().save(state)

    def _shapes(self) -> TrainState:
        return self._program.shapes

    def _initial(self) -> TrainState:
        return self._initial_state()

    def _begin(self) -> None:
        if is_first() and self._metrics.place.exists():
            self._metrics.read()  # raises where it is damaged
            self._metrics.rewrite([])

    def _resume(self, saved: Saved) -> None:
        if saved.window:
            self._window = [
                {name: np.asarray(values, np.float32) for name, values in saved.window.items()}
            ]
        self._lower_rate()
        if not is_first():
            return
        lines = self._metrics.read()
        kept = [line for line in lines if line["step"] <= self.step]
        if len(kept) < len(lines):
            self._metrics.rewrite(kept)

    def _extra(self) -> dict[str, Any]:
        # A stop between two log lines must keep the metrics of which the next line is the mean.
        window = {
            name: np.concatenate([part[name] for part in self._window]).tolist()
            for name in (self._window[0] if self._window else ())
        }
        return {"window": window}

    def _evaluation(self, result: Evaluation, averaged: Evaluation | None) -> dict[str, Any]:
        """The line of a test, which is remembered too."""
        self.evaluations.append((self.step, result.values))
        self._lower_rate()
        average = f"; average: {averaged}" if averaged else ""
        self.say(f"{self._at()}  {result}{average}")
        values = {**_named("eval", result), **_named("eval_ema", averaged)}
        return {**values, "seconds": self.seconds}

    def _lower_rate(self) -> None:
        if rule := self._config.optimizer.plateau:
            losses = [values["loss"] for step, values in self.evaluations if step]
            self.rate_scale = plateau_scale(losses, rule)

    def _which(self, step: int) -> str:
        key = order_key(stream(self.run.seed, "data"))
        return self._program.feed.describe_step(key, step)

    def _record(self, values: dict[str, Any]) -> None:
        if is_first():
            self._metrics.append({"step": self.step, **values})
        for name, value in values.items() if self._writer else ():
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, self.step)


def next_due(step: int, end: int, cadences: Iterable[int]) -> int:
    """The next step at which something with one of these cadences is due, or the last.

    >>> next_due(7, 100, (10, 4, 0))
    8
    """
    return min([end, *(step - step % n + n for n in cadences if n)])


def _named(prefix: str, result: Evaluation | None) -> dict[str, Any]:
    if result is None:
        return {}
    values = {f"{prefix}_{name}": value for name, value in result.values.items()}
    return {**values, f"{prefix}_count": result.count}


def _wrong(history: History, index: int) -> str:
    loss, norm = history["loss"][index], history["grad_norm"][index]
    return f"the loss is {loss}" + (f" and its gradient {norm}" if np.isfinite(loss) else "")


def _means(window: list[History]) -> dict[str, float]:
    """The mean of each metric over the steps."""
    return {
        name: float(np.concatenate([part[name] for part in window]).mean(dtype=np.float64))
        for name in window[0]
    }


def _tensorboard(run: Run) -> Any:
    from tensorboardX import SummaryWriter  # an optional dependency

    return SummaryWriter(str((run.folder / "tensorboard").path))
