"""A lock on a run's folder: one training at a time.

It is `flock` and not a lock file of a library, because the lock file names its holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import pathlib
from collections.abc import Callable, Iterator

from mimetic_jax.errors import InputError
from mimetic_jax.train.workdir.lease import in_use, leased, this_process
from mimetic_jax.train.workdir.paths import AnyPath, in_bucket, regular


@contextlib.contextmanager
def locked(directory: AnyPath, say: Callable[[str], None] = print) -> Iterator[None]:
    """Hold the folder's lock, which the system releases with the process, however that ends.

    In a bucket it is a lease, see `lease`.

    Raises:
        InputError: if another process holds it, or the folder can't be written.
    """
    path = directory / "lock"
    if in_bucket(path):
        with leased(path, say):
            yield
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+", errors="replace", opener=regular)  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{directory} can't be written: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise in_use(directory, file.read().strip() or "another process") from None
        file.truncate(0)
        file.write(f"{this_process()}\n")
        file.flush()
        yield


def held(directory: pathlib.Path) -> bool:
    """Whether a live process holds the lock of a local folder; returns at once."""
    try:
        file = (directory / "lock").open()
    except OSError:
        return False
    with file:
        try:
            # Shared, so that two callers don't take each other for a training.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
