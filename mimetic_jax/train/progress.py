"""Progress of training: one live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

Say = Callable[[str], None]


class Progress:
    """Plain lines: what a file, a pipe, a notebook or a caller's own function gets.

    Steps are counted over all runs that train at once.

    Attributes:
        say: prints a line that stays.

    Args:
        say: prints a line.
    """

    def __init__(self, say: Say) -> None:
        self.say = say

    @property
    def live(self) -> bool:
        """Whether a live line shows the steps, so that no plain line has to."""
        return False

    def prepare(self, label: str, waiting: int) -> None:
        """What comes next, and the steps of the runs that come after it."""

    def now(self, doing: str) -> None:
        """What has begun instead of training, such as "compiling"."""

    def begin(self, taken: int, end: int) -> None:
        """The first step is about to be taken, after those of an earlier process."""

    def at(self, taken: int, loss: str, speed: str) -> None:
        """Steps have been taken."""

    def end(self) -> None:
        """Nothing trains any more."""


class LiveLine(Progress):
    """A bar at the bottom of a terminal; lines that stay are printed above it.

    The estimates count evaluations and checkpoints too, but not what happens before the first step.
    Runs that wait are expected to be as fast as all steps so far.

    Args:
        stream: the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(self._above)
        self._stream, self._seconds, self._steps = stream, 0.0, 0  # of what has trained before
        self._bar: Any = None

    @property
    def live(self) -> bool:
        return self._bar is not None

    def prepare(self, label: str, waiting: int) -> None:
        self._label, self._waiting = label, waiting
        self._bar = _bar(self._stream, f"{label}  preparing …")
        self.begin(0, 1)

    def now(self, doing: str) -> None:
        if self.live:
            self._bar.set_description_str(f"{self._label}  {doing} …")

    def begin(self, taken: int, end: int) -> None:
        self._began, self._first = time.perf_counter(), taken
        if self.live:
            self._bar.total, self._bar.n = end, taken

    def at(self, taken: int, loss: str, speed: str) -> None:
        if not self.live:
            return
        seconds, steps = time.perf_counter() - self._began, taken - self._first
        left = (self._bar.total - taken) * seconds / steps
        eta = f"ETA {clock(left)}"
        if self._waiting:
            pace = (self._seconds + seconds) / (self._steps + steps)
            eta += f", all runs {clock(left + self._waiting * pace)}"
        self._bar.set_description_str(f"{self._label}  {loss}  {eta}  {speed}", refresh=False)
        self._bar.ncols = _width()  # it may have changed
        self._bar.update(taken - self._bar.n)

    def end(self) -> None:
        if self.live:
            self._seconds += time.perf_counter() - self._began
            self._steps += self._bar.n - self._first
            self._bar.close()
            self._bar = None

    def _above(self, line: str) -> None:
        if self.live:
            self._bar.write(line, file=self._stream)
        else:
            print(line, file=self._stream, flush=True)


def progress_of(say: Say) -> Progress:
    """A live line where `say` prints to a terminal, else plain lines."""
    if say is print and sys.stdout.isatty():
        return LiveLine(sys.stdout)
    return Progress(say)


def clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> clock(75), clock(3675), clock(math.inf)
    ('1:15', '1:01:15', '?')
    """
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _bar(stream: TextIO, text: str) -> Any:
    from tqdm import tqdm

    class Bar(tqdm):
        monitor_interval = 0  # no thread that watches bars

    # miniters=0: any number of steps is drawn, at most ten times a second. Sizes are given, since
    # tqdm draws nothing on a terminal that doesn't report its size.
    return Bar(
        desc=text,
        bar_format="{percentage:3.0f} %|{bar}| {desc}",
        file=stream,
        leave=False,
        miniters=0,
        ncols=_width(),
        nrows=2,
    )


def _width() -> int:
    return shutil.get_terminal_size().columns - 1
