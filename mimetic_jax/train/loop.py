"""Training runs at once, from their newest checkpoints to their last steps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from mimetic_jax.data.feed.feed import Session
from mimetic_jax.errors import InputError
from mimetic_jax.train.books import Books, Diverged
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.cluster.processes import is_first
from mimetic_jax.train.idle import Idle
from mimetic_jax.train.program import Program
from mimetic_jax.train.progress import Progress, Say, clock
from mimetic_jax.train.state import order_key, stream
from mimetic_jax.train.together import Alone, Group, Several, by_slot, skipped
from mimetic_jax.train.watch import Watch
from mimetic_jax.train.workdir.lock import locked
from mimetic_jax.train.workdir.runs import Run


def train(
    runs: Mapping[Run, ConfigDict],
    program: Program,
    data: Any,
    say: Say,
    fingerprint: str = "",
    *,
    diverged: Callable[[Run, Diverged], None],
    progress: Progress | None = None,
) -> None:
    """Train one run to its end, or several at once, each from its newest checkpoint if it has any.

    Batches, augmentation and dropout are functions of (seed, step), so a run that was killed and
    restarted computes what an uninterrupted one computes. Dispatches end at the steps where a log
    line, an evaluation or a checkpoint of some run is due.

    Args:
        runs: the config of its arm, checked, by run.
        program: of all these runs.
        data: placed by the program's feed.
        say: prints a line of progress.
        fingerprint: of the data; a checkpoint trained on other data isn't continued.
        diverged: called when a run's loss isn't finite, whose last checkpoint before is kept; the
            other runs go on, unless this raises.
        progress: shows the steps in between; plain lines unless given.

    Raises:
        Preempted: if the process was asked to stop; what was trained is saved.
        InputError: if a folder is in use or can't be written, or its checkpoint doesn't fit.
    """
    say = say if is_first() else _silent
    try:
        with contextlib.ExitStack() as held:
            books = []
            for run, config in runs.items():
                note = say if len(runs) == 1 else _prefixed(f"{run.arm} seed {run.seed}: ", say)
                if is_first():
                    held.enter_context(locked(run.directory, note))
                books.append(Books(run, config, program, data, note, fingerprint))
                held.callback(books[-1].close)
            stall_seconds = next(iter(runs.values())).stall_seconds
            shown = progress or Progress(say)
            _Training(books, program, data, say, diverged, shown).go(stall_seconds)
    except OSError as error:
        names = ", ".join(f"{run.arm} seed {run.seed}" for run in runs)
        raise InputError(
            f"{names}: {error}; once that is fixed, the same command continues from the newest "
            "whole checkpoint"
        ) from error


class _Training:
    """The dispatches of a group of runs, and what enters their books in between."""

    def __init__(
        self,
        books: Sequence[Books],
        program: Program,
        data: Any,
        say: Say,
        diverged: Callable[[Run, Diverged], None],
        progress: Progress,
    ) -> None:
        self.books, self.program, self.data, self.say = books, program, data, say
        self.diverged, self.progress = diverged, progress
        self.open = dict(enumerate(books))  # by slot of the group; without what finished, diverged

    def go(self, stall_seconds: float) -> None:
        self.group = self._started()
        feed, end, first = self.program.feed, self.program.steps, self.books[0]
        key = order_key(stream(first.run.seed, "data"))
        session = feed.session(self.data, key, first.step, end)
        self.idle, self.watch = Idle(), Watch(stall_seconds, self.say)
        try:
            if self._running():  # A dispatch of no steps compiles outside the measured time.
                self._now("compiling")
                arrays = session.arrays()
                self.group.steps(arrays, 0, self._rate_scales())
            self._evaluate([slot for slot, book in self.open.items() if book.step == 0])
            self._finish()
            self.progress.begin(self._taken(), end * len(self.books))
            while running := self._running():
                count = min(
                    feed.max_dispatch, *(book.next_due - book.step for book in running.values())
                )
                began = time.perf_counter()
                self.idle.dispatching()
                history = self.group.steps(arrays, count, self._rate_scales())
                self.idle.dispatched(history)
                if any(book.step + count < end for book in running.values()):
                    self.watch.now("waiting for data")
                    arrays = session.arrays()  # while the device computes
                self.watch.now("waiting for the device")
                host = jax.device_get(history)
                seconds = (time.perf_counter() - began) / len(running)
                self._count(running, host, count, seconds)
                self._show(running, host, count)
                self._log(session)
                # Before the checkpoint: a run that continues from it won't evaluate this step.
                self._evaluate([slot for slot, book in self.open.items() if book.evaluation_due])
                stopping = bool(self._running()) and preemption.should_stop()
                self._save(everything=stopping)
                self._finish()
                if stopping:
                    self._stop()
        finally:
            self.watch.close()
            self.idle.close()
            session.close()

    def _started(self) -> Group:
        states = [book.start() for book in self.books]
        seeds = [book.run.seed for book in self.books]
        if len(states) == 1:
            return Alone(self.program, self.data, seeds[0], states[0])
        return Several(self.program, self.data, seeds, states)

    def _running(self) -> dict[int, Books]:
        return {slot: book for slot, book in self.open.items() if not book.ended}

    def _now(self, doing: str) -> None:
        self.watch.now(doing)
        self.progress.now(doing)

    def _taken(self) -> int:
        return sum(book.step for book in self.books)

    def _rate_scales(self) -> list[float]:
        return [book.rate_scale for book in self.books]

    def _count(
        self,
        running: Mapping[int, Books],
        host: dict[str, np.ndarray],
        count: int,
        seconds: float,
    ) -> None:
        opt_state = self.group.opt_state()
        for slot, book in running.items():
            try:
                book.count(by_slot(host, slot, count), seconds, skipped(opt_state, slot))
            except Diverged as error:
                del self.open[slot]
                self.diverged(book.run, error)

    def _show(self, running: Mapping[int, Books], host: dict[str, np.ndarray], count: int) -> None:
        if not self.progress.live:
            return
        with np.errstate(all="ignore"):  # a loss that isn't finite is reported by the books
            loss = np.mean([by_slot(host, slot, count)["loss"] for slot in running])
        step, book = self._taken() // len(self.books), next(iter(running.values()))
        shown = f"step {step}/{self.program.steps}  loss {loss:.4f}"
        self.progress.at(self._taken(), shown, f"{book.speed:,.0f} {self.program.task.unit}/s")

    def _log(self, session: Session) -> None:
        due = [book for book in self.open.values() if book.log_due]
        if not due:
            return
        waited = self.idle.share() if session.waits else 0.0
        lines = [book.log(waited) for book in due]
        if not self.progress.live:
            self._say_steps(due, lines, waited)
        for note in session.notes():
            self.say(note)

    def _say_steps(self, due: Sequence[Books], lines: Sequence[str], waited: float) -> None:
        task, rate = self.program.task, due[-1].speed
        left = sum(self.program.steps - book.step for book in self.open.values())
        bound = f"input-bound {100 * waited:.0f} %  " if waited >= 0.01 else ""
        speed = f"{rate:,.0f} {task.unit}/s  {bound}ETA {clock(left * task.per_step / rate)}"
        if len(self.books) == 1:
            self.say(f"{lines[0]}  {speed}")
        else:
            for book, line in zip(due, lines, strict=True):
                book.say(line)
            several = len(self.open) > 1
            self.say(f"{f'{len(self.open)} runs at once' if several else 'one run left'}: {speed}")

    def _evaluate(self, slots: Collection[int]) -> None:
        if slots:
            self._now("testing")
            tested = self.group.test()
            for slot in slots:
                self.open[slot].evaluated(*tested[slot])
            self.idle.interrupted()

    def _save(self, everything: bool) -> None:
        for slot, book in self.open.items():
            if everything or book.checkpoint_due:
                self._now("writing a checkpoint")
                book.save(self.group.state(slot))
                self.idle.interrupted()

    def _finish(self) -> None:
        """Close the books of runs that took their last step."""
        ended = {slot: book for slot, book in self.open.items() if book.ended}
        if not ended:
            return
        # All last checkpoints are complete before any run counts as finished: after a kill in
        # between, those that don't have nothing left to train.
        for book in ended.values():
            book.wait()
        self._now("testing")
        tested = self.group.test()
        for slot, book in ended.items():
            del self.open[slot]
            try:
                book.finish(*tested[slot])
            except Diverged as error:
                self.diverged(book.run, error)

    def _stop(self) -> None:
        for book in self.open.values():
            book.wait()
        steps = sorted({book.step for book in self.open.values()})
        raise preemption.Preempted(f"stopped at step {', '.join(map(str, steps))}, which is saved")


def _silent(line: str) -> None:
    return None


def _prefixed(prefix: str, say: Say) -> Say:
    return lambda line: say(f"{prefix}{line}")
