"""Training one run, from its newest checkpoint to its last step."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from mimetic_jax.errors import InputError
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.cluster.processes import is_first, wait_for_all
from mimetic_jax.train.config import to_json
from mimetic_jax.train.idle import Idle
from mimetic_jax.train.program import Program
from mimetic_jax.train.schedule import plateau_scale
from mimetic_jax.train.state import TrainState, order_key, stream
from mimetic_jax.train.tasks.task import Evaluation
from mimetic_jax.train.warm_start import initial_state
from mimetic_jax.train.watch import Watch
from mimetic_jax.train.workdir.checkpoint import Checkpoints
from mimetic_jax.train.workdir.lock import locked
from mimetic_jax.train.workdir.origin import origin
from mimetic_jax.train.workdir.runs import Run
from mimetic_jax.version import source_version

Say = Callable[[str], None]


class Diverged(InputError):
    """A run's loss is no longer finite: training diverges with these settings."""


def train(
    run: Run,
    config: ConfigDict,
    program: Program,
    data: Any,
    say: Say,
    fingerprint: str = "",
) -> None:
    """Train a run to its end, from its newest checkpoint if it has any.

    Batches, augmentation and dropout are functions of (seed, step), so a run that was killed and
    restarted computes what an uninterrupted one computes. Dispatches end at the steps where a log
    line, an evaluation or a checkpoint is due.

    Args:
        run: which run.
        config: of the arm, checked.
        program: of the configuration.
        data: placed by the program's feed.
        say: prints a line of progress.
        fingerprint: of the data; a checkpoint trained on other data isn't continued.

    Raises:
        Diverged: if the loss isn't finite; the last checkpoint before is kept.
        Preempted: if the process was asked to stop; what was trained is saved.
        InputError: if the folder is in use or can't be written, or its checkpoint doesn't fit.
    """
    try:
        with locked(run.directory, say) if is_first() else contextlib.nullcontext():
            _Training(run, config, program, data, say if is_first() else _silent, fingerprint).go()
    except OSError as error:
        raise InputError(
            f"{run.arm} seed {run.seed}: {error}; once that is fixed, the same command continues "
            "from the newest whole checkpoint"
        ) from error


class _Training:
    """The state of a training, and what is due at its steps."""

    def __init__(
        self,
        run: Run,
        config: ConfigDict,
        program: Program,
        data: Any,
        say: Say,
        fingerprint: str,
    ) -> None:
        self.run, self.config, self.program, self.data, self.say = run, config, program, data, say
        self.made = {"code": source_version(), "config": to_json(config), "data": fingerprint}
        wait_for_all("run folder")  # process 0 makes it
        self.checkpoints = Checkpoints(
            run.directory / "checkpoints", config.keep_checkpoints, say, self._best
        )
        self.end, self.data_key = program.steps, stream(run.seed, "data")
        per_epoch = program.feed.steps_per_epoch
        self.eval_every = config.eval.every or round(config.eval.every_epochs * per_epoch)
        self.seconds = 0.0
        self.losses: list[float] = []  # of the evaluations after the first step
        self.scores: dict[int, float] = {}  # of all evaluations by step, higher is better
        self.window: list[dict[str, np.ndarray]] = []
        self.writer: Any = _tensorboard(run) if config.tensorboard and is_first() else None

    def go(self) -> None:
        try:
            self.state = self._start()
            self.step = int(self.state.step)
            self._steps()
            # Only once the last checkpoint is complete: this record marks the run as finished.
            self.checkpoints.wait()
            self._evaluate(finished=True, **({"origin": origin()} if is_first() else {}))
        finally:
            self.checkpoints.close()
            if self.writer:
                self.writer.close()

    def _start(self) -> TrainState:
        """The newest whole checkpoint, else the initial state."""
        restored = self.checkpoints.restore(self.program.shapes)
        if restored is None:
            if is_first():
                self.run.metrics.rewind(-1)
            return initial_state(self.program, self.config, self.run.arm, self.run.seed, self.say)
        state, record = restored
        self._recognize(record["made"])
        self.seconds, self.losses = record["seconds"], record["losses"]
        self.scores = dict(record["scores"])
        if window := record["window"]:
            self.window = [
                {name: np.asarray(values, np.float32) for name, values in window.items()}
            ]
        if is_first():
            self.checkpoints.set_aside(after=int(state.step))
            self.run.metrics.rewind(int(state.step))
        wait_for_all("set aside")
        self.checkpoints.reload()
        self.say(f"continues at step {int(state.step)}")
        return state

    def _recognize(self, made: dict[str, Any]) -> None:
        """Check that a checkpoint was trained on this data; report another version of the code."""
        if made["data"] != self.made["data"]:
            raise InputError(
                f"{self.run.directory} was trained on other data (fingerprint {made['data']} "
                f"there, {self.made['data']} here): use that data, or another --workdir"
            )
        if made["code"] != self.made["code"]:
            self.say(f"its checkpoint is of version {made['code']}, this is {self.made['code']}")

    def _best(self, steps: Sequence[int]) -> list[int]:
        """The steps with the best evaluations."""
        scored = [step for step in steps if step in self.scores]
        best_first = sorted(scored, key=lambda step: -self.scores[step])
        return best_first[: self.config.keep_best]

    def _steps(self) -> None:
        program, end = self.program, self.end
        keys = self.data_key, stream(self.run.seed, "dropout")
        cadences = (self.config.log_every, self.eval_every, self.config.checkpoint_every)
        scale = self._rate_scale()
        session = program.feed.session(self.data, order_key(self.data_key), self.step, end)
        idle, watch = Idle(), Watch(self.config.stall_seconds, self.say)
        try:
            if self.step < end:  # A dispatch of no steps compiles outside the measured time.
                watch.now("compiling")
                arrays = session.arrays()
                self.state, _ = program.run_steps(self.state, arrays, *keys, jnp.int32(0), scale)
            if self.step == 0:
                self._evaluate()
            while self.step < end:
                stop = min([end, *(self.step - self.step % n + n for n in cadences if n)])
                count = min(stop - self.step, program.feed.max_dispatch)
                began = time.perf_counter()
                idle.dispatching()
                self.state, history = program.run_steps(
                    self.state, arrays, *keys, jnp.int32(count), scale
                )
                idle.dispatched(history)
                if self.step + count < end:
                    watch.now("waiting for data")
                    arrays = session.arrays()  # while the device computes
                watch.now("waiting for the device")
                host = jax.device_get(history)
                self.seconds += time.perf_counter() - began
                self._count({name: values[:count] for name, values in host.items()})
                if self.step == end or self._due(self.config.log_every):
                    self._log(scale, idle.share() if session.waits else 0.0)
                    for note in session.notes():
                        self.say(note)
                # Before the checkpoint: a run that continues from it won't evaluate this step.
                if self.step < end and self._due(self.eval_every):
                    watch.now("testing")
                    self._evaluate()
                    scale = self._rate_scale()
                    idle.interrupted()
                stopping = self.step < end and preemption.should_stop()
                if self.step == end or stopping or self._due(self.config.checkpoint_every):
                    watch.now("writing a checkpoint")
                    self._save()
                    idle.interrupted()
                if stopping:
                    self.checkpoints.wait()
                    raise preemption.Preempted(f"stopped at step {self.step}, which is saved")
        finally:
            watch.close()
            idle.close()
            session.close()

    def _due(self, every: int) -> bool:
        return bool(every) and self.step % every == 0

    def _count(self, history: dict[str, np.ndarray]) -> None:
        """Record the steps of a dispatch, whose losses must be finite."""
        first, self.step = self.step, self.step + len(history["loss"])
        self.window.append(history)
        if limit := self.config.optimizer.skip_nonfinite:
            for index in _not_finite(history):
                step = first + index
                self.say(f"step {step} is skipped: {_wrong(history, index)}{self._which(step)}")
            if self.state.opt_state.notfinite_count <= limit:
                return
        _check_finite(self.run, first, history, self._which)

    def _which(self, step: int) -> str:
        return self.program.feed.describe_step(self.data, order_key(self.data_key), step)

    def _rate_scale(self) -> jax.Array:
        rule = self.config.optimizer.plateau
        return jnp.float32(plateau_scale(self.losses, rule) if rule else 1)

    def _save(self) -> None:
        # A stop between two log lines must keep the metrics of which the next line is the mean.
        window = {
            name: np.concatenate([part[name] for part in self.window]).tolist()
            for name in (self.window[0] if self.window else ())
        }
        record = {
            "made": self.made,
            "seconds": self.seconds,
            "losses": self.losses,
            "scores": list(self.scores.items()),
            "window": window,
        }
        self.checkpoints.save(self.state, record)

    def _record(self, values: dict[str, Any]) -> None:
        if is_first():
            self.run.metrics.append({"step": self.step, **values})
        for name, value in values.items() if self.writer else ():
            if isinstance(value, int | float):
                self.writer.add_scalar(name, value, self.step)

    def _evaluate(self, **more: Any) -> None:
        result = self.program.test(self.state.variables, self.data)
        averaged = self.program.test(self.state.ema, self.data) if self.config.ema else None
        measured = {**_named("eval", result), **_named("eval_ema", averaged)}
        self._record({**measured, "seconds": self.seconds, **more})
        self.scores[self.step] = self.program.task.score.goodness(result.values)
        if self.step:
            self.losses.append(result.values["loss"])
        average = f"; average: {averaged}" if averaged else ""
        self.say(f"step {self.step:>6}/{self.end}  {result}{average}")

    def _log(self, scale: jax.Array, waited: float) -> None:
        means, self.window = _means(self.window), []
        if self.config.optimizer.skip_nonfinite:
            means["skipped"] = int(self.state.opt_state.total_notfinite)
        task = self.program.task
        rate = self.step * task.per_step / self.seconds
        self._record(
            {
                **means,
                "learning_rate": float(self.program.schedule(self.step - 1) * scale),
                "examples_per_second": rate,
                "input_bound": waited,
                "seconds": self.seconds,
            }
        )
        shown = task.progress(means) if "loss" in means else "no step with a finite loss"
        left = (self.end - self.step) * task.per_step / rate
        bound = f"input-bound {100 * waited:.0f} %  " if waited >= 0.01 else ""
        self.say(
            f"step {self.step:>6}/{self.end}  {shown}  {rate:,.0f} {task.unit}/s  "
            f"{bound}ETA {_clock(left)}"
        )


def _silent(line: str) -> None:
    return None


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


def _clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _tensorboard(run: Run) -> Any:
    from tensorboardX import SummaryWriter  # an optional dependency

    return SummaryWriter(str(run.directory / "tensorboard"))
