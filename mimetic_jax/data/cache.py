"""The cache of prepared data: what is made from a text once, and dropped when it is oldest."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import numpy as np

LIMIT = 10 * 2**30
"""Bytes that arrays in the cache may have together. Tokenizers stay, as they may be in use."""

_ARRAYS = re.compile(r"(bpe_\d+|counts)_[\da-f]{32}\.npz(\.\w+)?")
"""Names of the files of arrays, and of those that are being written."""


def cache_folder() -> Path:
    """Locate the cache: mimetic_jax in $XDG_CACHE_HOME, which is ~/.cache unless set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mimetic_jax")


def write_cached(path: Path, write: Callable[[IO[bytes]], object]) -> bool:
    """Write a file of the cache, whole or not at all; returns whether it could be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            prefix=f"{path.name}.", dir=path.parent, delete=False
        ) as file:
            try:
                write(file.file)
                file.close()
                os.replace(file.name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(file.name)
                raise
    except OSError:  # no home folder, a full disk
        return False
    return True


def cached_arrays(
    path: Path, names: Iterable[str], make: Callable[[], dict[str, np.ndarray]]
) -> tuple[dict[str, np.ndarray], str]:
    """Read the arrays of a file of the cache; make and write them if there is none.

    A damaged file is made again, and so said in the note, which is "" else: the checksums of its
    arrays are checked. Beyond `LIMIT` the files that were read or written longest ago are dropped.
    """
    note = ""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            found = {name: file[name] for name in names}
        with contextlib.suppress(OSError):  # of a cache that is read only
            os.utime(path)
        return found, note
    except MemoryError:  # the file is whole
        raise
    except Exception as error:  # a damaged file may raise anything
        if not isinstance(error, OSError):  # else there is none
            note = f"{path} was damaged and is made again"
    arrays = make()
    if write_cached(path, lambda file: np.savez(file, **arrays)):  # type: ignore[arg-type]
        _drop_oldest(path)
    return arrays, note


def _drop_oldest(latest: Path) -> None:
    """Delete arrays that were used longest ago, until those beside the latest leave room for it."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(latest.parent):
            if _ARRAYS.fullmatch(entry.name) and entry.name != latest.name:
                about = entry.stat(follow_symlinks=False)
                found.append((about.st_mtime, about.st_size, entry.path))
        total = latest.stat().st_size + sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= LIMIT:
                return
            os.unlink(path)
            total -= size
