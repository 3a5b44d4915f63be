"""How host computations share the cores of the machine, and keep BLAS from fighting over them."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_here = threading.local()


def on_cores(
    function: Callable[[Item], Result], items: Sequence[Item], *, large: bool = False
) -> Iterator[Result]:
    """The function of each item, in order, computed on all cores at once.

    Calls may nest: what is called from within a task runs in that task's thread.

    Args:
        function: is run in other threads; JAX's default device is the caller's in them.
        items: what it is run on.
        large: whether a single item is work for several cores: BLAS then gets those that the
            number of items leaves over, and one thread a task else.

    Returns:
        An iterator of results; BLAS threads are limited until it is exhausted or closed.

    Example:
        >>> list(on_cores(lambda number: number**2, [1, 2, 3]))
        [1, 4, 9]
    """
    if _nested():
        yield from map(function, items)
        return
    device = jax.config.jax_default_device  # type: ignore[attr-defined]  # the thread's

    def task(item: Item) -> Result:
        _here.nested = True
        with jax.default_device(device):
            return function(item)

    with limited_blas(max(1, cores() // max(len(items), 1)) if large else 1):
        yield from _pool().map(task, items)


def sharing() -> int:
    """How many tasks like the one that asks may be running beside each other."""
    return cores() if _nested() else 1


@contextlib.contextmanager
def limited_blas(threads: int = 1) -> Iterator[None]:
    """At most so many BLAS threads; within `on_cores` its own limit stands.

    The limit is the process's: if each task set and restored it, the last one to end would leave
    the limit of another behind. One is the right number below D = 1024: OpenBLAS's threads wait
    by spinning, which on a machine that does anything else costs small matrices fifty times
    their work.
    """
    if _nested():
        yield
    else:
        with _blas().limit(limits=threads, user_api="blas"):
            yield


@functools.cache
def calm_virtual_devices() -> None:
    """One BLAS thread for this process where several CPU devices share its cores.

    Each virtual device runs the program's LAPACK calls at the same time; with OpenBLAS's own
    threads on top, eight of them took sixteen times as long as with one thread each. There is
    no later moment to limit them: the calls run whenever the caller runs the program.
    """
    if jax.default_backend() == "cpu" and jax.local_device_count() > 1:
        _blas().limit(limits=1, user_api="blas")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _nested() -> bool:
    return getattr(_here, "nested", False)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="mimetic_jax")


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
