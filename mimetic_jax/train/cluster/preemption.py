"""Preemption: a checkpoint at the next step, and an exit code that means "restart"."""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import jax
from jax.experimental import multihost_utils

EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h: the launch scripts restart a job that ends with it."""

_requested = threading.Event()
_points = itertools.count()


class Preempted(Exception):
    """The process was asked to stop, and the run is saved."""


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """While this lasts, SIGTERM asks for a stop at the next step.

    Several processes listen through JAX's coordination service, which passes the notice of one to
    all, so that they stop at the same step.
    """
    if jax.process_count() > 1 or threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        _requested.set()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        _requested.clear()


def should_stop() -> bool:
    """Whether to save and stop now; the same answer in every process.

    Every process must call it equally often: calls are counted, since steps start again with each
    run.
    """
    if jax.process_count() > 1:
        return bool(multihost_utils.reached_preemption_sync_point(next(_points)))
    return _requested.is_set()
