"""A lock for buckets, which know none: a note that its holder renews, and that goes stale."""

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
_RENEWALS = 3  # a holder that misses so many is gone


def this_process() -> str:
    """As others shall know it."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def in_use(directory: AnyPath, holder: str) -> InputError:
    """Why a folder that somebody holds can't be had."""
    return InputError(
        f"{directory} is in use by {holder}: two trainings of one run would overwrite each other"
    )


@contextlib.contextmanager
def leased(
    path: AnyPath, say: Callable[[str], None] = print, seconds: float = RENEWAL_SECONDS
) -> Iterator[None]:
    """Hold the note at `path`, renewing it, as long as the block lasts.

    A note of somebody else's is watched first: who renews it is alive, and a killed process's
    note stays as it is. No clocks are compared.

    Args:
        path: of the note.
        say: prints a line while a note is watched.
        seconds: between two renewals.

    Raises:
        InputError: somebody else holds it.
    """
    owner, token = this_process(), secrets.token_hex(4)
    if found := _read(path):
        say(f"{path} is of {_holder(found)}: waiting {_RENEWALS * seconds:.0f} s for its renewal")
        _refuse_if_changed(path, found, _RENEWALS * seconds)
    note = f"{owner}\n{token}\n0\n"
    path.write_text(note)
    _refuse_if_changed(path, note, seconds / 10)  # two that came at once: the later one stays
    stop = threading.Event()

    def renew() -> None:
        number = 0
        while not stop.wait(seconds):
            number += 1
            # A bucket out of reach for a moment ends no training.
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
    return note.splitlines()[0] if note.strip() else "somebody"


def _refuse_if_changed(path: AnyPath, note: str, seconds: float) -> None:
    """Return once the note has been the same for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(1.0, seconds / 10))
        now = _read(path)
        if not now:  # let go of in the meantime, unless it was ours
            return
        if now != note:
            raise in_use(path.parent, _holder(now))
