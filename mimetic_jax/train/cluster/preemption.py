"""Preemption: a checkpoint at the next step, and an exit code that means "restart"."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import jax
from jax.experimental import multihost_utils

EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h: the launch scripts restart a job that ends with it."""

_ANSWER = (
    "stopping after the steps that are being computed, which are saved; Ctrl-C again stops without "
    "saving them"
)

_requested = threading.Event()
_points = itertools.count()


class Preempted(Exception):
    """The process was asked to stop, and the run is saved."""


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """While this lasts, SIGTERM or SIGINT (Ctrl-C) asks for a stop at the next step.

    SIGINT is answered at once, on stderr. A second one does what it does without this, so as a rule
    it raises KeyboardInterrupt. One that is ignored, as in a background job, stays so. Other
    threads than the main one can't listen.

    Several processes listen through JAX's coordination service, which passes the SIGTERM of one to
    all, so that they stop at the same step; SIGINT is passed on to it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    several = jax.process_count() > 1

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            signal.signal(number, before[number])
        if several:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            _requested.set()

    before: dict[int, Any] = {}
    if not several:
        # None if it isn't of Python, which can't set it again.
        before[signal.SIGTERM] = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
    if (handler := signal.getsignal(signal.SIGINT)) not in (None, signal.SIG_IGN):
        before[signal.SIGINT] = handler
    try:
        for number in before:
            signal.signal(number, note)
        with _answering() if signal.SIGINT in before else contextlib.nullcontext():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _requested.clear()


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """Answer the first SIGINT, also while the main thread waits for a device or a compiler, where
    Python's handlers don't run."""
    signals, written = os.pipe()
    os.set_blocking(written, False)
    other = signal.set_wakeup_fd(written, warn_on_full_buffer=False)

    def answer() -> None:
        answered = False
        while number := os.read(signals, 1):
            if number[0] == signal.SIGINT and not answered:
                print(f"\n{_ANSWER}", file=sys.stderr, flush=True)
                answered = True

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(other)
        os.close(written)
        thread.join()
        os.close(signals)


def should_stop() -> bool:
    """Tell whether to save and stop now; the same answer in every process.

    Every process must call it equally often: calls are counted, since steps start again with each
    run.
    """
    if jax.process_count() > 1:
        return bool(multihost_utils.reached_preemption_sync_point(next(_points)))
    return _requested.is_set()
