"""A lease for buckets, which have no locks: a file that its holder renews.

No library offers this for objects without conditional writes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator

from mimetic_jax.errors import InputError
from mimetic_jax.train.workdir.paths import AnyPath

RENEWAL_SECONDS = 20.0
_RENEWALS = 3  # a holder that misses as many has ended


def this_process() -> str:
    """The name of this process in lock files and messages."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def in_use(directory: AnyPath, holder: str) -> InputError:
    """The error for a folder whose lock another process holds."""
    return InputError(
        f"{directory} is in use by {holder}: two trainings of one run would overwrite each other"
    )


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
    owner, token = this_process(), secrets.token_hex(4)
    if found := _read(path):
        wait = _RENEWALS * seconds
        say(f"{path} belongs to {_holder(found)}: waiting {wait:.0f} s for its renewal")
        _refuse_if_changed(path, found, _RENEWALS * seconds)
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
            raise in_use(path.parent, _holder(now))
