"""Timing of training: how long devices wait for the host, and a line when nothing happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax


class WaitingTime:
    """Measures the time between one dispatch's end and the next one's start.

    A thread waits for each dispatch, since the host is busy with the next batch by then.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mimetic_jax_waiting")
        self._ended: Future[float] | None = None
        self._began = time.perf_counter()
        self._waited = self._total = 0.0

    def dispatching(self) -> None:
        """Record the start of a dispatch."""
        now = time.perf_counter()
        if self._ended is not None:
            self._waited += now - self._ended.result() if self._ended.done() else 0.0
            self._total += now - self._began
        self._began = now

    def dispatched(self, result: Any) -> None:
        """Record what the dispatch returns, once it is computed."""
        self._ended = self._thread.submit(_ready_at, result)

    def interrupted(self) -> None:
        """Leave the time since the last dispatch out."""
        self._ended = None

    def share(self) -> float:
        """The share of time spent waiting since the last call."""
        share = self._waited / self._total if self._total else 0.0
        self._waited = self._total = 0.0
        return share

    def close(self) -> None:
        self._thread.shutdown()


def _ready_at(result: Any) -> float:
    jax.block_until_ready(result)
    return time.perf_counter()


class StallReport:
    """Prints a line whenever no step has ended for some seconds.

    Args:
        seconds: to wait before the line; 0: never.
        say: prints a line.
    """

    def __init__(self, seconds: float, say: Callable[[str], None]) -> None:
        self._seconds, self._say = seconds, say
        self._doing, self._quiet = "starting", 0.0
        self._woken, self._closed = threading.Event(), False
        if seconds:
            threading.Thread(target=self._wait, daemon=True).start()

    def now(self, doing: str) -> None:
        """Record progress, and what has begun, such as "waiting for data"."""
        self._doing = doing
        self._woken.set()

    def close(self) -> None:
        self._closed = True
        self._woken.set()

    def _wait(self) -> None:
        while not self._closed:
            if self._woken.wait(self._seconds):
                self._woken.clear()
                self._quiet = 0.0
            else:
                self._quiet += self._seconds
                self._say(f"nothing has happened for {self._quiet:.0f} s: {self._doing}")
