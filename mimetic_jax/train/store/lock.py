"""A lock on a run's folder: one training at a time.

It is `flock`, which the system releases with the process, however that ends. Buckets have no locks,
and some file systems have none either: there nothing keeps two trainings of a run apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Callable, Iterator

from mimetic_jax.base.errors import InputError
from mimetic_jax.train.store.places import Place, flock


@contextlib.contextmanager
def locked(folder: Place | str, say: Callable[[str], None] = print) -> Iterator[None]:
    """Hold the folder's lock, which is made with the folder if it is missing.

    Args:
        folder: of a run.
        say: prints a line where the file system has no locks.

    Raises:
        InputError: if another process holds it, or the folder can't be written.
    """
    folder = Place.of(folder)
    if folder.in_bucket:
        yield
        return
    place = folder / "lock"
    try:
        folder.make()
        file = place.path.open("ab")
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror or error}") from error
    with file:
        try:
            flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = place.read().decode(errors="replace").strip() or "another process"
            raise InputError(
                f"{folder} is in use by {holder}: two trainings of one run would overwrite each "
                "other"
            ) from None
        except OSError as error:
            say(
                f"{folder} is on a file system without locks ({error.strerror}): don't train the "
                "same run twice at once"
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        file.flush()
        yield
