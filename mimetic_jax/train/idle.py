"""The share of time that the devices wait for the host."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax


class Idle:
    """Measures the time between one dispatch's end and the next one's start.

    A thread waits for each dispatch, since the host is busy with the next batch by then.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mimetic_jax_idle")
        self._ended: Future[float] | None = None
        self._began = time.perf_counter()
        self._idle = self._total = 0.0

    def dispatching(self) -> None:
        """Record the start of a dispatch."""
        now = time.perf_counter()
        if self._ended is not None:
            self._idle += now - self._ended.result() if self._ended.done() else 0.0
            self._total += now - self._began
        self._began = now

    def dispatched(self, result: Any) -> None:
        """Record what the dispatch returns, once it is computed."""
        self._ended = self._thread.submit(_ready_at, result)

    def interrupted(self) -> None:
        """Leave the time since the last dispatch out."""
        self._ended = None

    def share(self) -> float:
        """The share of idle time since the last call."""
        share = self._idle / self._total if self._total else 0.0
        self._idle = self._total = 0.0
        return share

    def close(self) -> None:
        self._thread.shutdown()


def _ready_at(result: Any) -> float:
    jax.block_until_ready(result)
    return time.perf_counter()
