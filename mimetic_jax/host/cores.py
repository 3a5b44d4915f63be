"""How host computations share the CPU cores, and how many threads BLAS may use meanwhile."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_thread = threading.local()


def on_cores(
    function: Callable[[Item], Result], items: Sequence[Item], *, large: bool = False
) -> Iterator[Result]:
    """Apply a function to items on all cores at once; results come in the order of the items.

    Calls may nest: a call within a task runs in that task's thread. Threads have the caller's
    default JAX device. If one item is enough work for several cores (`large`), BLAS gets
    cores / items threads per task, otherwise one, until the iterator is exhausted or closed.

    >>> list(on_cores(lambda number: number**2, [1, 2, 3]))
    [1, 4, 9]
    """
    if _nested():
        yield from map(function, items)
        return
    device = jax.config.jax_default_device  # type: ignore[attr-defined]  # the thread's

    def task(item: Item) -> Result:
        _thread.nested = True
        with jax.default_device(device):
            return function(item)

    with limited_blas(max(1, cores() // max(len(items), 1)) if large else 1):
        # Each core has a next task, and no more results wait than that for a slower caller.
        running: collections.deque[Future[Result]] = collections.deque()
        try:
            for item in items:
                running.append(_pool().submit(task, item))
                if len(running) > cores():
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def concurrency() -> int:
    """Return how many tasks like the caller may run at the same time."""
    return cores() if _nested() else 1


@contextlib.contextmanager
def limited_blas(threads: int = 1) -> Iterator[None]:
    """Limit BLAS to this many threads; inside an `on_cores` task, that call's limit stays.

    The limit is per process: while calls of several threads overlap, the least of their limits
    holds, and the last one to end restores what was before the first. One thread is best below
    D = 1024: OpenBLAS's threads spin while they wait, which on a machine under other load takes
    fifty times as long as a small matrix needs.
    """
    if _nested():
        yield
        return
    _limits.enter(threads)
    try:
        yield
    finally:
        _limits.leave(threads)


class _Limits:
    """The limits on BLAS that are in force, and what was before the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_force: list[int] = []
        self._before: Any = None

    def enter(self, threads: int) -> None:
        with self._lock:
            limiter = _blas().limit(limits=min([threads, *self._in_force]), user_api="blas")
            if not self._in_force:
                self._before = limiter
            self._in_force.append(threads)

    def leave(self, threads: int) -> None:
        with self._lock:
            self._in_force.remove(threads)
            if self._in_force:
                _blas().limit(limits=min(self._in_force), user_api="blas")
            else:
                self._before.restore_original_limits()


_limits = _Limits()


@functools.cache
def limit_blas_of_virtual_devices() -> None:
    """Limit BLAS to one thread for good if several CPU devices share this process's cores.

    All virtual devices run the program's LAPACK calls at the same time; with OpenBLAS's own
    threads on top, eight devices took sixteen times as long as with one thread each. A limit for
    the time of the calls isn't possible: they run whenever the caller runs the program.
    """
    if jax.default_backend() == "cpu" and jax.local_device_count() > 1:
        _blas().limit(limits=1, user_api="blas")


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _nested() -> bool:
    return getattr(_thread, "nested", False)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="mimetic_jax")


@functools.cache
def _blas() -> ThreadpoolController:
    # SciPy has a BLAS of its own: the controller limits only what is loaded when it is made.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
