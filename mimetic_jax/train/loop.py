"""One run: an arm with a seed, from its last checkpoint to its last step."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from mimetic_jax.errors import InputError
from mimetic_jax.train.checkpoint import Checkpoints
from mimetic_jax.train.idle import Idle
from mimetic_jax.train.metrics import MetricsFile
from mimetic_jax.train.program import Program
from mimetic_jax.train.schedule import plateau_scale
from mimetic_jax.train.state import TrainState, stream
from mimetic_jax.train.task import Evaluation
from mimetic_jax.train.warm_start import warm_start

Say = Callable[[str], None]


class Diverged(InputError):
    """A run's loss is no longer finite: these settings can't be trained."""


@dataclasses.dataclass(frozen=True)
class Run:
    """Where an arm with a seed lives in the workdir, and what is already known of it."""

    arm: str
    seed: int
    directory: pathlib.Path

    @classmethod
    def of(cls, workdir: pathlib.Path, arm: str, seed: int) -> Run:
        return cls(arm, seed, workdir / "runs" / arm / str(seed))

    @property
    def metrics(self) -> MetricsFile:
        return MetricsFile(self.directory / "metrics.jsonl")

    def evaluations(self) -> list[dict[str, Any]]:
        """The records of tests, in order."""
        return [record for record in self.metrics.read() if "eval_count" in record]

    def finished(self) -> bool:
        return any("finished" in record for record in self.evaluations())


def train(run: Run, config: ConfigDict, program: Program, data: Any, say: Say) -> None:
    """Train a run to its end, or continue where its newest checkpoint stands.

    Batches, augmentation and dropout are functions of (seed, step), so a run that was killed
    and started again computes what it would have computed. Dispatches end at the steps where
    something is due: a log line, an evaluation, a checkpoint, the end.

    Args:
        run: which run.
        config: of the arm, checked.
        program: of the configuration.
        data: as the program's feed placed it.
        say: prints a line of progress.

    Raises:
        Diverged: if the loss isn't finite; the last checkpoint before stays.
    """
    run.directory.mkdir(parents=True, exist_ok=True)
    checkpoints = Checkpoints(run.directory / "checkpoints", config.keep_checkpoints, say)
    try:
        state, seconds = _start(run, config, program, checkpoints, say)
        _loop(run, config, program, data, state, seconds, checkpoints, say)
    finally:
        checkpoints.close()


def _start(
    run: Run, config: ConfigDict, program: Program, checkpoints: Checkpoints, say: Say
) -> tuple[TrainState, float]:
    """The newest whole checkpoint, else the initial state."""

    def warm(params: Any) -> Any:
        if not config.init_from:
            return params
        return warm_start(params, config.init_from, run.arm, run.seed, say)

    restored = checkpoints.restore(program.shapes)
    if restored is None:
        run.metrics.rewind(-1)
        return program.initial_state(run.seed, config.scheme, warm), 0.0
    state, record = restored
    checkpoints.set_aside(after=int(state.step))
    run.metrics.rewind(int(state.step))
    say(f"continues at step {int(state.step)}")
    return state, record["seconds"]


def _loop(
    run: Run,
    config: ConfigDict,
    program: Program,
    data: Any,
    state: TrainState,
    seconds: float,
    checkpoints: Checkpoints,
    say: Say,
) -> None:
    keys = stream(run.seed, "data"), stream(run.seed, "dropout")
    writer: Any = _tensorboard(run) if config.tensorboard else None
    metrics, step, end = run.metrics, int(state.step), program.steps
    per_epoch = program.feed.steps_per_epoch
    eval_every = config.eval.every or round(config.eval.every_epochs * per_epoch)
    cadences = (config.log_every, eval_every, config.checkpoint_every)
    window: list[dict[str, np.ndarray]] = []

    def record(values: dict[str, Any]) -> None:
        metrics.append({"step": step, **values})
        for name, value in values.items() if writer else ():
            writer.add_scalar(name, value, step)

    def due(every: int) -> bool:
        return bool(every) and step % every == 0

    def evaluate(**more: Any) -> None:
        result = program.test(state.params, data)
        averaged = program.test(state.ema, data) if config.ema else None
        measured = {**_named("eval", result), **_named("eval_ema", averaged)}
        record({**measured, "seconds": seconds, **more})
        say(f"step {step:>6}/{end}  {result}{f'; average: {averaged}' if averaged else ''}")

    def rate_scale() -> jax.Array:
        if not config.optimizer.plateau:
            return jnp.float32(1)
        losses = [past["eval_loss"] for past in run.evaluations() if past["step"] > 0]
        return jnp.float32(plateau_scale(losses, config.optimizer.plateau))

    scale = rate_scale()
    session, idle = program.feed.session(data, run.seed, step, end), Idle()
    try:
        arrays = session.arrays() if step < end else None
        if arrays is not None:  # No steps: compiles outside the clock.
            state, _ = program.run_steps(state, arrays, *keys, jnp.int32(0), scale)
        if step == 0:
            evaluate()
        while step < end:
            stop = min([end, *(step - step % every + every for every in cadences if every)])
            count = min(stop - step, program.feed.max_dispatch)
            began = time.perf_counter()
            idle.dispatching()
            state, history = program.run_steps(state, arrays, *keys, jnp.int32(count), scale)
            idle.dispatched(history)
            if step + count < end:
                arrays = session.arrays()  # while the device computes
            history = {name: values[:count] for name, values in jax.device_get(history).items()}
            seconds += time.perf_counter() - began
            step += count
            window.append(history)
            _check_finite(run, step - count, history["loss"])

            if step == end or due(config.log_every):
                means = _means(window)
                window = []
                rate = step * program.task.per_step / seconds
                record(
                    {
                        **means,
                        "learning_rate": float(program.schedule(step - 1) * scale),
                        "examples_per_second": rate,
                        "input_bound": (waited := idle.share() if session.waits else 0.0),
                        "seconds": seconds,
                    }
                )
                left = (end - step) * program.task.per_step / rate
                bound = f"input-bound {100 * waited:.0f} %  " if waited >= 0.01 else ""
                say(
                    f"step {step:>6}/{end}  {program.task.progress(means)}  "
                    f"{rate:,.0f} {program.task.unit}/s  "
                    f"{bound}ETA {_clock(left)}"
                )
                for note in session.notes():
                    say(note)
            # Before the checkpoint: a run that continues from it never comes back to this step.
            if step < end and due(eval_every):
                evaluate()
                scale = rate_scale()
                idle.interrupted()
            if step == end or due(config.checkpoint_every):
                checkpoints.save(state, {"seconds": seconds})
                idle.interrupted()
    finally:
        idle.close()
        session.close()
    # After the last checkpoint is whole: this record is what makes a run count as finished.
    checkpoints.wait()
    evaluate(finished=True)
    if writer:
        writer.close()


def _named(prefix: str, result: Evaluation | None) -> dict[str, Any]:
    if result is None:
        return {}
    values = {f"{prefix}_{name}": value for name, value in result.values.items()}
    return {**values, f"{prefix}_count": result.count}


def _check_finite(run: Run, first: int, losses: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(losses))
    if bad.size:
        raise Diverged(
            f"{run.arm} seed {run.seed}: the loss is {losses[bad[0]]} at step "
            f"{first + int(bad[0])}; checkpoints up to step {first} are kept: lower the "
            "learning rate or set optimizer.clip"
        )


def _means(window: list[dict[str, np.ndarray]]) -> dict[str, float]:
    return {
        name: float(np.concatenate([part[name] for part in window]).mean(dtype=np.float64))
        for name in window[0]
    }


def _clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _tensorboard(run: Run) -> Any:
    from tensorboardX import SummaryWriter  # optional: only where asked for

    return SummaryWriter(str(run.directory / "tensorboard"))
