"""Being told to stop: a checkpoint first, and an exit code that means "start me again"."""

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
"""EX_TEMPFAIL of sysexits.h: what Slurm's and Kubernetes' scripts here restart on."""

_told = threading.Event()
_points = itertools.count()


class Preempted(Exception):
    """Somebody asked the process to stop, and the run is saved."""


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """SIGTERM means "stop at the next chance" while this lasts.

    Several processes listen through JAX's coordination service, which hands the notice of one to
    all, so that they stop at the same step.
    """
    if jax.process_count() > 1 or threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        _told.set()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        _told.clear()


def should_stop() -> bool:
    """Whether to save and stop now; the same answer in every process.

    Every process must ask as often as the others: what is counted are the calls, since steps
    begin again with each run.
    """
    if jax.process_count() > 1:
        return bool(multihost_utils.reached_preemption_sync_point(next(_points)))
    return _told.is_set()
