"""The host's memory: how much is available, and that a program keeps what it frees."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import re

import jax

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
"""Parameters of glibc's mallopt, from malloc.h."""

_MEMINFO = pathlib.Path("/proc/meminfo")
_LIMITS = tuple(
    pathlib.Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory/memory.limit_in_bytes")
)


def available_bytes() -> int:
    """Memory that can be allocated without swapping, at most the limit of the container."""
    found = re.search(r"^MemAvailable: +(\d+) kB", _content(_MEMINFO), re.MULTILINE)
    if found:
        free = 1024 * int(found[1])
    else:  # not Linux
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # What a container uses includes the cache of its files, which the kernel gives back.
    limits = [int(text) for file in _LIMITS if (text := _content(file).strip()).isdigit()]
    return min([free, *limits])


def keep_freed_memory() -> None:
    """Let the process keep what it frees, if JAX computes on the CPU and glibc allocates.

    A step's temporary arrays are one block of hundreds of MiB. glibc gives such a block back to the
    system when the step ends, and the next step waits until the kernel has filled every page of it
    with zeros again: a sixth of the processor time of a small language model. Memory that is kept
    is as much as the process ever had at one time.

    To be called before JAX computes: a thread stays in the arena of its first allocation, and only
    the main arena grows beyond 64 MiB. With an accelerator nothing is changed, as its arrays aren't
    allocated here, and threads that decode images are best in arenas of their own.
    """
    if platform.libc_ver()[0] != "glibc" or not _computes_on_cpu():
        return
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, value in ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1)):
        mallopt(parameter, value)


def _computes_on_cpu() -> bool:
    """Whether JAX has no other backend to choose, known without starting one."""
    chosen = jax.config.jax_platforms  # type: ignore[attr-defined]
    if chosen:
        return bool(chosen == "cpu")
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return not plugins and importlib.util.find_spec("libtpu") is None


def _content(file: pathlib.Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
