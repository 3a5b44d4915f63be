"""The training loop: dispatches of a group of runs, and what enters their journals in between."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.group import Group
from mimetic_jax.train.journal import Diverged, History, Journal
from mimetic_jax.train.progress import Progress, Say, clock


class Loop:
    """The training of a group, from the newest checkpoints of its runs to their last steps.

    Batches, augmentation and dropout are functions of (seed, step), so a run that was killed and
    restarted computes what an uninterrupted one computes. Dispatches end at the steps where a log
    line, an evaluation or a checkpoint of some run is due.

    Args:
        group: of the runs.
        say: prints a line of progress.
        diverged: called when a run's loss isn't finite, whose last checkpoint before is kept; the
            other runs go on, unless this raises.
        progress: shows the steps in between.
    """

    def __init__(
        self,
        group: Group,
        *,
        say: Say,
        diverged: Callable[[Journal, Diverged], None],
        progress: Progress,
    ) -> None:
        self.group, self.journals, self.program = group, group.journals, group.program
        self.say, self.diverged, self.progress = say, diverged, progress
        self.open = dict(enumerate(self.journals))  # without those that finished or diverged
        starts = np.cumsum([0, *(len(journal.seeds) for journal in self.journals)])
        self.slots = [slice(a, b) for a, b in itertools.pairwise(starts)]

    def run(self) -> None:
        """Train.

        Raises:
            Preempted: if the process was asked to stop; what was trained is saved.
            InputError: if a checkpoint doesn't fit or can't be written.
        """
        feed, end = self.program.feed, self.program.steps
        session = self.group.session()
        try:
            if self._running():  # A dispatch of no steps compiles outside the measured time.
                self.progress.now("compiling")
                arrays = session.arrays()
                self.group.steps(arrays, 0, self._rate_scales())
            self._evaluate([i for i, one in self.open.items() if one.step == 0])
            self._finish()
            self.progress.begin(self._taken(), end * self._runs())
            while running := self._running():
                count = min(
                    feed.max_dispatch, *(one.next_due - one.step for one in running.values())
                )
                began = time.perf_counter()
                metrics = self.group.steps(arrays, count, self._rate_scales())
                if any(one.step + count < end for one in running.values()):
                    arrays = session.arrays()  # while the device computes
                history = self.group.history(metrics, count)
                self._count(running, history, (time.perf_counter() - began) / len(running))
                self._show(running, history)
                self._log()
                # Before the checkpoint: a run that continues from it won't evaluate this step.
                self._evaluate([i for i, one in self.open.items() if one.evaluation_due])
                stopping = bool(self._running()) and preemption.should_stop()
                self._save(everything=stopping)
                self._finish()
                if stopping:
                    self._stop()
        finally:
            session.close()

    def _running(self) -> dict[int, Journal]:
        return {i: one for i, one in self.open.items() if not one.ended}

    def _runs(self) -> int:
        return sum(len(one.seeds) for one in self.journals)

    def _taken(self) -> int:
        return sum(one.step * len(one.seeds) for one in self.journals)

    def _rate_scales(self) -> list[float]:
        return [one.rate_scale for one in self.journals]

    def _of(self, history: History, i: int) -> History:
        return {name: values[self.slots[i]] for name, values in history.items()}

    def _count(self, running: Mapping[int, Journal], history: History, seconds: float) -> None:
        for i, journal in running.items():
            try:
                journal.count(self._of(history, i), seconds)
            except Diverged as error:
                del self.open[i]
                self.diverged(journal, error)

    def _show(self, running: Mapping[int, Journal], history: History) -> None:
        if not self.progress.live:
            return
        with np.errstate(all="ignore"):  # a loss that isn't finite is reported by its journal
            loss = np.mean([self._of(history, i)["loss"].mean() for i in running])
        shown = f"step {self._taken() // self._runs()}/{self.program.steps}  loss {loss:.4f}"
        speed = next(iter(running.values())).speed
        self.progress.at(self._taken(), shown, f"{speed:,.0f} {self.program.task.unit}/s")

    def _log(self) -> None:
        due = [one for one in self.open.values() if one.log_due]
        if not due:
            return
        lines = [one.log() for one in due]
        if not self.progress.live:
            self._say_steps(due, lines)

    def _say_steps(self, due: Sequence[Journal], lines: Sequence[str]) -> None:
        task, rate = self.program.task, due[-1].speed
        left = sum((self.program.steps - one.step) * len(one.seeds) for one in self.open.values())
        speed = f"{rate:,.0f} {task.unit}/s  ETA {clock(left * task.per_step / rate)}"
        if len(self.journals) == 1:
            self.say(f"{lines[0]}  {speed}")
            return
        for journal, line in zip(due, lines, strict=True):
            journal.say(line)
        several = len(self.open) > 1
        self.say(f"{f'{len(self.open)} runs at once' if several else 'one run left'}: {speed}")

    def _evaluate(self, which: Collection[int]) -> None:
        if which:
            self.progress.now("testing")
            tested = self.group.test()
            for i in which:
                self.open[i].evaluated(tested[self.slots[i]])

    def _save(self, everything: bool) -> None:
        for i, journal in self.open.items():
            if everything or journal.checkpoint_due:
                self.progress.now("writing a checkpoint")
                journal.save(self.group.state(i))

    def _finish(self) -> None:
        """Close the journals of runs that took their last step."""
        ended = {i: one for i, one in self.open.items() if one.ended}
        if not ended:
            return
        # All last checkpoints are complete before any run counts as finished: after a kill in
        # between, those that don't have nothing left to train.
        for journal in ended.values():
            journal.wait()
        self.progress.now("testing")
        tested = self.group.test()
        for i, journal in ended.items():
            del self.open[i]
            try:
                journal.finish(tested[self.slots[i]], functools.partial(self.group.state, i))
            except Diverged as error:
                self.diverged(journal, error)

    def _stop(self) -> None:
        for journal in self.open.values():
            journal.wait()
        steps = sorted({journal.step for journal in self.open.values()})
        raise preemption.Preempted(f"stopped at step {', '.join(map(str, steps))}, which is saved")
