"""A lock on a run's folder: one training at a time.

On a disk it is `flock`, which the system releases with the process, however that ends. A bucket has
no locks, and no library offers them for objects without conditional writes: there it is a lease, a
file that its holder renews.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator

from mimetic_jax.errors import InputError
from mimetic_jax.host import files
from mimetic_jax.train.store.places import AnyPath, Place

RENEWAL_SECONDS = 20.0
_RENEWALS = 3  # a holder that misses as many has ended


@contextlib.contextmanager
def locked(folder: Place | str, say: Callable[[str], None] = print) -> Iterator[None]:
    """Hold the folder's lock, which is made with the folder if it is missing.

    Args:
        folder: of a run or of members.
        say: prints a line while another holder's lease is watched.

    Raises:
        InputError: if another process holds it, or the folder can't be written.
    """
    folder = Place.of(folder)
    place = folder / "lock"
    if folder.in_bucket:
        with leased(place.path, say):
            yield
        return
    try:
        folder.make()
        file = files.open_to_write(place.path, "ab")
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = place.read().decode(errors="replace").strip()
            raise _in_use(str(folder), holder or "another process") from None
        file.truncate(0)
        file.write(f"{_this_process()}\n".encode())
        file.flush()
        yield


def held(folder: Place) -> bool:
    """Whether a live process holds the lock of a local folder; returns at once."""
    try:
        file = files.open_to_read((folder / "lock").path)
    except OSError:
        return False
    with file:
        try:
            # Shared, so that two callers don't take each other for a training.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


@contextlib.contextmanager
def leased(
    path: AnyPath, say: Callable[[str], None] = print, seconds: float = RENEWAL_SECONDS
) -> Iterator[None]:
    """Hold the lease file at `path`, and renew it while the block lasts.

    A file of another process is watched first: a live holder renews it, a killed one doesn't. No
    clocks are compared.

    Args:
        path: of the file.
        say: prints a line while another holder's file is watched.
        seconds: between two renewals.

    Raises:
        InputError: if another process holds it.
    """
    owner, token = _this_process(), secrets.token_hex(4)
    if found := _read(path):
        wait = _RENEWALS * seconds
        say(f"{path} belongs to {_holder(found)}: waiting {wait:.0f} s for its renewal")
        _refuse_if_changed(path, found, wait)
    note = f"{owner}\n{token}\n0\n"
    path.write_text(note)
    _refuse_if_changed(path, note, seconds / 10)  # of two that came at once, the later one stays
    stop = threading.Event()

    def renew() -> None:
        number = 0
        while not stop.wait(seconds):
            number += 1
            # A bucket that fails for a moment must not end the training.
            with contextlib.suppress(Exception):
                path.write_text(f"{owner}\n{token}\n{number}\n")

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        path.unlink(missing_ok=True)


def _this_process() -> str:
    """The name of this process in lock files and messages."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _in_use(folder: str, holder: str) -> InputError:
    return InputError(
        f"{folder} is in use by {holder}: two trainings of one run would overwrite each other"
    )


def _read(path: AnyPath) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _holder(note: str) -> str:
    return note.splitlines()[0] if note.strip() else "another process"


def _refuse_if_changed(path: AnyPath, note: str, seconds: float) -> None:
    """Return once the file has stayed the same for `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(1.0, seconds / 10))
        now = _read(path)
        if not now:  # released in the meantime, unless it was ours
            return
        if now != note:
            raise _in_use(str(path.parent), _holder(now))
