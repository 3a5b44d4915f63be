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
from mimetic_jax.train.metrics import MetricsFile
from mimetic_jax.train.program import DeviceData, Program
from mimetic_jax.train.state import TrainState, stream

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
        """The records with a test accuracy, in order."""
        return [record for record in self.metrics.read() if "eval_accuracy" in record]

    def finished(self, steps: int) -> bool:
        return any(record["step"] == steps for record in self.evaluations())


def train(run: Run, config: ConfigDict, program: Program, data: DeviceData, say: Say) -> None:
    """Train a run to its end, or continue where its newest checkpoint stands.

    Batches, augmentation and dropout are functions of (seed, step), so a run that was killed
    and started again computes what it would have computed. Dispatches end at the steps where
    something is due: a log line, an evaluation, a checkpoint, the end.

    Args:
        run: which run.
        config: of the arm, checked.
        program: of the configuration.
        data: on the program's mesh.
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
    restored = checkpoints.restore(program.shapes)
    if restored is None:
        run.metrics.rewind(-1)
        return program.initial_state(run.seed, config.scheme), 0.0
    state, record = restored
    checkpoints.set_aside(after=int(state.step))
    run.metrics.rewind(int(state.step))
    say(f"continues at step {int(state.step)}")
    return state, record["seconds"]


def _loop(
    run: Run,
    config: ConfigDict,
    program: Program,
    data: DeviceData,
    state: TrainState,
    seconds: float,
    checkpoints: Checkpoints,
    say: Say,
) -> None:
    keys = stream(run.seed, "data"), stream(run.seed, "dropout")
    writer: Any = _tensorboard(run) if config.tensorboard else None
    metrics, step, end = run.metrics, int(state.step), program.steps
    cadences = (config.log_every, config.eval.every, config.checkpoint_every)
    # No steps: compiles outside the clock.
    state, _ = program.run_steps(state, data.train, *keys, jnp.int32(0))
    window: list[dict[str, np.ndarray]] = []

    def record(values: dict[str, Any]) -> None:
        metrics.append({"step": step, **values})
        for name, value in values.items() if writer else ():
            writer.add_scalar(name, value, step)

    def due(every: int) -> bool:
        return bool(every) and step % every == 0

    def evaluate() -> None:
        result = program.test(state.params, data)
        record(
            {
                "eval_accuracy": result.accuracy,
                "eval_loss": result.loss,
                "eval_count": result.count,
                "seconds": seconds,
            }
        )
        say(f"step {step:>6}/{end}  {result}")

    if step == 0:
        evaluate()
    while step < end:
        stop = min([end, *(step - step % every + every for every in cadences if every)])
        count = min(stop - step, program.max_dispatch)
        began = time.perf_counter()
        state, history = program.run_steps(state, data.train, *keys, jnp.int32(count))
        history = {name: values[:count] for name, values in jax.device_get(history).items()}
        seconds += time.perf_counter() - began
        step += count
        window.append(history)
        _check_finite(run, step - count, history["loss"])

        if step == end or due(config.log_every):
            means = _means(window)
            window = []
            rate = step * program.batch / seconds
            record(
                {
                    **means,
                    "learning_rate": float(program.schedule(step - 1)),
                    "examples_per_second": rate,
                    "seconds": seconds,
                }
            )
            left = (end - step) * program.batch / rate
            say(
                f"step {step:>6}/{end}  loss {means['loss']:.4f}  "
                f"accuracy {100 * means['accuracy']:5.1f} %  {rate:,.0f} images/s  "
                f"ETA {_clock(left)}"
            )
        # Before the checkpoint: a run that continues from it never comes back to this step.
        if step < end and due(config.eval.every):
            evaluate()
        if step == end or due(config.checkpoint_every):
            checkpoints.save(state, {"seconds": seconds})
    # After the last checkpoint is whole: this record is what makes a run count as finished.
    checkpoints.wait()
    evaluate()
    if writer:
        writer.close()


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
