"""The training loop: dispatches of a group of runs, and when to test, log and save in between."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Iterable, Mapping

from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.group import Group, Say
from mimetic_jax.train.store.runs import Run


def train(group: Group, say: Say) -> dict[Run, str]:
    """Train a group from its newest checkpoint to its last step.

    Batches, augmentation and dropout are functions of (seed, step), so runs that were killed and
    restarted compute what uninterrupted ones compute.

    Returns what went wrong in the runs whose loss isn't finite. The others go on; a group of which
    no run is left ends at its last checkpoint before.
    """
    config, program, journal = group.config, group.program, group.journal
    feed, end, runs = program.feed, program.steps, len(journal.runs)
    every = evaluation_every(config.eval, feed.steps_per_epoch)
    cadences = (config.log_every, every, config.checkpoint_every)
    wrong = _reported(journal.lost(), say)

    def due(every: int) -> bool:
        return bool(every) and journal.step % every == 0

    def note(text: str) -> None:
        say(f"step {journal.step:>6}/{end}  {text}")

    def evaluate() -> None:
        note(journal.evaluated(*group.evaluate())[0])

    with contextlib.closing(group.session()) as session:
        if journal.step < end:  # A dispatch of no steps compiles outside the measured time.
            arrays = next(session)
            group.steps(arrays, 0)
            if preemption.should_stop():
                raise preemption.Preempted("stopped before the next step")
        if journal.step == 0:
            evaluate()
        while journal.step < end:
            count = min(feed.max_dispatch, next_due(journal.step, end, cadences) - journal.step)
            began = time.perf_counter()
            metrics = group.steps(arrays, count)
            if journal.step + count < end:
                arrays = next(session)  # while the device computes
            failed = journal.count_steps(group.history(metrics, count), time.perf_counter() - began)
            wrong |= _reported(failed, say, journal.step - count if runs == 1 else None)
            if not any(journal.finite):
                return wrong
            ended = journal.step == end
            if ended or due(config.log_every):
                note(f"{journal.log()}  {_speed(group)}")
            # Before the checkpoint: a run that continues from it won't evaluate this step.
            if not ended and due(every):
                evaluate()
            stopping = not ended and preemption.should_stop()
            if ended or stopping or due(config.checkpoint_every):
                group.save()
            if stopping:
                group.checkpoints.wait()
                raise preemption.Preempted(f"stopped at step {journal.step}, which is saved")
    group.checkpoints.wait()
    summary, failed = journal.evaluated(*group.evaluate(), last=True)
    note(summary)
    return wrong | _reported(failed, say)


def evaluation_every(config: Mapping[str, float], steps_per_epoch: int) -> int:
    """Steps between two tests, from `config.eval`; 0 for only those of the start and the end.

    >>> evaluation_every({"every": 0, "every_epochs": 0.5}, 44)
    22
    >>> evaluation_every({"every": 0, "every_epochs": 0.01}, 44)
    1
    """
    if every := config["every"]:
        return int(every)
    epochs = config["every_epochs"]
    return max(1, round(epochs * steps_per_epoch)) if epochs else 0


def next_due(step: int, end: int, cadences: Iterable[int]) -> int:
    """Return the next step at which something with one of these cadences is due, or the last.

    >>> next_due(7, 100, (10, 4, 0))
    8
    """
    return min([end, *(step - step % n + n for n in cadences if n)])


def _reported(failed: dict[Run, str], say: Say, kept: int | None = None) -> dict[Run, str]:
    for run, what in failed.items():
        before = "" if kept is None else f"; checkpoints up to step {kept} are kept"
        say(f"{run}: {what}{before}: lower the learning rate or set optimizer.clip")
    return failed


def _speed(group: Group) -> str:
    journal, program = group.journal, group.program
    examples = (program.steps - journal.step) * len(journal.runs) * program.task.per_step
    eta = datetime.timedelta(seconds=round(examples / journal.speed))
    mfu = f"  MFU {share:.0%}" if (share := journal.speed * program.share_of_peak) else ""
    return f"{journal.speed:,.0f} {program.task.unit}/s{mfu}  ETA {eta}"
