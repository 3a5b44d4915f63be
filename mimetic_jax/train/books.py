"""The books of one run: what is due at its steps, what is recorded, and from where it continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from mimetic_jax.errors import InputError
from mimetic_jax.train.cadence import eval_every, next_due
from mimetic_jax.train.cluster.processes import is_first, wait_for_all
from mimetic_jax.train.config import check_same, to_json
from mimetic_jax.train.program import Program
from mimetic_jax.train.progress import Say
from mimetic_jax.train.schedule import plateau_scale
from mimetic_jax.train.state import TrainState, order_key, stream
from mimetic_jax.train.tasks.task import Evaluation
from mimetic_jax.train.warm_start import initial_state
from mimetic_jax.train.workdir.checkpoint import (
    Checkpoints,
    report_version,
    trained_on_other_data,
)
from mimetic_jax.train.workdir.origin import origin
from mimetic_jax.train.workdir.runs import Run
from mimetic_jax.version import source_version


class Diverged(InputError):
    """A run's loss is no longer finite: training diverges with these settings."""


class Books:
    """The records of one run while it trains: metrics, evaluations, checkpoints.

    Attributes:
        run: which run.
        step: steps taken.
        seconds: of training so far. Runs that train at once each count their share, the time of a
            dispatch over the number of runs in it, so that all of them add up to the time taken.
        rate_scale: the factor of the learning rate, which a plateau rule lowers.

    Args:
        run: which run.
        config: of the arm, checked.
        program: of the configuration.
        data: placed by the program's feed.
        say: prints a line of progress.
        fingerprint: of the data; a checkpoint trained on other data, or with another
            configuration, isn't continued.
    """

    def __init__(
        self,
        run: Run,
        config: ConfigDict,
        program: Program,
        data: Any,
        say: Say,
        fingerprint: str,
    ) -> None:
        self.run, self.say, self.step, self.seconds = run, say, 0, 0.0
        self._config, self._program, self._data = config, program, data
        self._made: dict[str, Any] = {
            "code": source_version(),
            "config": to_json(config),
            "data": fingerprint,
        }
        wait_for_all("run folder")  # process 0 makes it
        self._checkpoints = Checkpoints(
            run.directory / "checkpoints", config.keep_checkpoints, say, self._best
        )
        self._eval_every = eval_every(config, program.feed.steps_per_epoch)
        self._losses: list[float] = []  # of the evaluations after the first step
        self._scores: dict[int, float] = {}  # of all evaluations by step, higher is better
        self._window: list[dict[str, np.ndarray]] = []
        self._skipped = 0
        self._writer: Any = _tensorboard(run) if config.tensorboard and is_first() else None
        self.rate_scale = 1.0

    def start(self) -> TrainState:
        """The newest whole checkpoint, else the initial state."""
        restored = self._checkpoints.restore(self._program.shapes)
        if restored is None:
            if is_first():
                self.run.metrics.rewind(-1)
            run = self.run
            return initial_state(self._program, self._config, run.arm, run.seed, self.say)
        state, record = restored
        self._recognize(record["made"])
        self.step = int(state.step)
        self.seconds, self._losses = record["seconds"], record["losses"]
        self._scores = dict(record["scores"])
        if window := record["window"]:
            self._window = [
                {name: np.asarray(values, np.float32) for name, values in window.items()}
            ]
        self._lower_rate()
        if is_first():
            self._checkpoints.set_aside(after=self.step)
            self.run.metrics.rewind(self.step)
        wait_for_all("set aside")
        self._checkpoints.reload()
        self.say(f"continues at step {self.step}")
        return state

    def close(self) -> None:
        """Wait for the checkpoints, and release the folder."""
        try:
            self._checkpoints.close()
        finally:
            if self._writer:
                self._writer.close()

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
        return not self.ended and self._due(self._eval_every)

    @property
    def checkpoint_due(self) -> bool:
        return self.ended or self._due(self._config.checkpoint_every)

    def count(
        self, history: dict[str, np.ndarray], seconds: float, skipped: tuple[int, int]
    ) -> None:
        """Record the steps of a dispatch, whose losses must be finite.

        Args:
            history: metrics of these steps, [steps] each.
            seconds: of the dispatch, the run's share.
            skipped: steps without finite gradients so far, in a row and in all, where
                `optimizer.skip_nonfinite` allows some.

        Raises:
            Diverged: if a loss isn't finite.
        """
        first, self.step = self.step, self.step + len(history["loss"])
        self.seconds += seconds
        self._window.append(history)
        in_a_row, self._skipped = skipped
        if limit := self._config.optimizer.skip_nonfinite:
            for index in _not_finite(history):
                step = first + index
                self.say(f"step {step} is skipped: {_wrong(history, index)}{self._which(step)}")
            if in_a_row <= limit:
                return
        _check_finite(self.run, first, history, self._which)

    def log(self, waited: float) -> str:
        """Record the means of the steps since the last log line, and return them in words.

        Args:
            waited: share of the time in which the devices waited for data.
        """
        means, self._window = _means(self._window), []
        if self._config.optimizer.skip_nonfinite:
            means["skipped"] = self._skipped
        rate = self._program.schedule(self.step - 1) * jnp.float32(self.rate_scale)
        self._record(
            {
                **means,
                "learning_rate": float(rate),
                "examples_per_second": self.speed,
                "input_bound": waited,
                "seconds": self.seconds,
            }
        )
        task = self._program.task
        shown = task.progress(means) if "loss" in means else "no step with a finite loss"
        return f"{self._at()}  {shown}"

    @property
    def speed(self) -> float:
        """Examples or tokens per second, of all runs that train at once."""
        return self.step * self._program.task.per_step / self.seconds

    def evaluated(self, result: Evaluation, averaged: Evaluation | None, **more: Any) -> None:
        """Record a test of the parameters, and of their average where there is one."""
        measured = {**_named("eval", result), **_named("eval_ema", averaged)}
        self._record({**measured, "seconds": self.seconds, **more})
        self._scores[self.step] = self._program.task.score.goodness(result.values)
        if self.step:
            self._losses.append(result.values["loss"])
            self._lower_rate()
        average = f"; average: {averaged}" if averaged else ""
        self.say(f"{self._at()}  {result}{average}")

    def finish(self, result: Evaluation, averaged: Evaluation | None) -> None:
        """Record the last test, which marks the run as finished; only once all is written.

        Raises:
            Diverged: if its loss isn't finite, as after a last step that made the weights so.
        """
        if not np.isfinite(result.values["loss"]):
            raise Diverged(
                f"{self.run.arm} seed {self.run.seed}: after the last step, {self.step}, the test "
                f"loss is {result.values['loss']}: lower the learning rate or set optimizer.clip"
            )
        self.evaluated(
            result, averaged, finished=True, **({"origin": origin()} if is_first() else {})
        )

    def save(self, state: TrainState) -> None:
        """Start writing a checkpoint."""
        # A stop between two log lines must keep the metrics of which the next line is the mean.
        window = {
            name: np.concatenate([part[name] for part in self._window]).tolist()
            for name in (self._window[0] if self._window else ())
        }
        record = {
            "made": self._made,
            "seconds": self.seconds,
            "losses": self._losses,
            "scores": list(self._scores.items()),
            "window": window,
        }
        self._checkpoints.save(state, record)

    def wait(self) -> None:
        """Return once the checkpoints are written."""
        self._checkpoints.wait()

    def _recognize(self, made: dict[str, Any]) -> None:
        """Check a checkpoint's data and config; report another version of the code."""
        if made["data"] != self._made["data"]:
            raise trained_on_other_data(self.run.directory, made["data"], self._made["data"])
        check_same(f"{self.run.directory}", made["config"], self._made["config"])
        report_version(made["code"], self.say)

    def _best(self, steps: Sequence[int]) -> list[int]:
        """The steps with the best evaluations."""
        scored = [step for step in steps if step in self._scores]
        best_first = sorted(scored, key=lambda step: -self._scores[step])
        return best_first[: self._config.keep_best]

    def _lower_rate(self) -> None:
        if rule := self._config.optimizer.plateau:
            self.rate_scale = plateau_scale(self._losses, rule)

    def _due(self, every: int) -> bool:
        return bool(every) and self.step % every == 0

    def _at(self) -> str:
        return f"step {self.step:>6}/{self._program.steps}"

    def _which(self, step: int) -> str:
        key = order_key(stream(self.run.seed, "data"))
        return self._program.feed.describe_step(self._data, key, step)

    def _record(self, values: dict[str, Any]) -> None:
        if is_first():
            self.run.metrics.append({"step": self.step, **values})
        for name, value in values.items() if self._writer else ():
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, self.step)


def _named(prefix: str, result: Evaluation | None) -> dict[str, Any]:
    if result is None:
        return {}
    values = {f"{prefix}_{name}": value for name, value in result.values.items()}
    return {**values, f"{prefix}_count": result.count}


def _not_finite(history: dict[str, np.ndarray]) -> np.ndarray:
    """Indices of the steps whose loss or gradient isn't finite."""
    return np.flatnonzero(~np.isfinite(history["loss"] + history["grad_norm"]))


def _wrong(history: dict[str, np.ndarray], index: int) -> str:
    loss, norm = history["loss"][index], history["grad_norm"][index]
    return f"the loss is {loss}" + (f" and its gradient {norm}" if np.isfinite(loss) else "")


def _check_finite(
    run: Run,
    first: int,
    history: dict[str, np.ndarray],
    which: Callable[[int], str] = lambda step: "",
) -> None:
    bad = _not_finite(history)
    if bad.size:
        step = first + int(bad[0])
        raise Diverged(
            f"{run.arm} seed {run.seed}: {_wrong(history, bad[0])} at step {step}{which(step)}; "
            f"checkpoints up to step {first} are kept: lower the learning rate or set "
            "optimizer.clip"
        )


def _means(window: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """Mean of each metric over the steps that weren't skipped; empty if all were."""
    joined = {name: np.concatenate([part[name] for part in window]) for name in window[0]}
    skipped = _not_finite(joined)
    if len(skipped) == len(joined["loss"]):
        return {}
    return {
        name: float(np.delete(values, skipped).mean(dtype=np.float64))
        for name, values in joined.items()
    }


def _tensorboard(run: Run) -> Any:
    from tensorboardX import SummaryWriter  # an optional dependency

    return SummaryWriter(str(run.directory / "tensorboard"))
