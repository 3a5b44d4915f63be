"""The files of a workdir: on a disk or in a bucket, whole after a kill, one training of a run."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from etils import epath

from mimetic_jax.base.errors import InputError, check_given, error_text
from mimetic_jax.base.extras import need
from mimetic_jax.base.typed import shown
from mimetic_jax.data.paths import local_path

try:
    import fcntl
except ImportError as error:  # Windows
    raise ImportError(
        "training needs Linux or macOS, whose locks (fcntl) keep two processes from "
        "training one run at once. On Windows use WSL."
    ) from error

AnyPath: TypeAlias = pathlib.Path | epath.Path
"""On a disk, or in a bucket."""


def path_of(path: str | os.PathLike[str]) -> AnyPath:
    """Return the path of a workdir, which is a local folder, "~" being that of the user, or
    `gs://…`."""
    if isinstance(path, pathlib.Path | epath.Path):
        return path
    if isinstance(path, os.PathLike):
        return pathlib.Path(path)
    if not isinstance(path, str):
        raise InputError(f"workdir {shown(path)} is not a path")
    check_given("workdir", path)
    return _bucket(path) if "://" in path else local_path(path)


def names(folder: AnyPath) -> list[str]:
    """Return the names in a folder, sorted; none if it is missing."""
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def read(path: AnyPath) -> bytes:
    """Return the content of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}") from error


def write(path: AnyPath, content: str | bytes) -> None:
    """Write a file so that a reader, even after a kill, sees the old content or the new.

    Its folder is made if it is missing.
    """
    content = content.encode() if isinstance(content, str) else content
    if in_bucket(path):  # objects are like that
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: jobs that share a workdir write its summary at the same time.
    draft = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.new")
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def append_line(path: AnyPath, line: str) -> None:
    """Append a line to a file, without what a kill left of another one.

    If the disk is full, nothing is appended. Processes that append take turns.
    """
    text = f"{line}\n".encode()
    if in_bucket(path):  # objects can't be added to
        path.write_bytes(_whole(path.read_bytes() if path.exists() else b"") + text)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b", buffering=0) as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        if file.read(1) != b"\n":
            file.seek(0)
            end = len(_whole(file.read()))
            file.truncate(end)
        try:
            while text:
                text = text[file.write(text) :]
        except OSError:
            file.truncate(end)
            raise


def sync(path: AnyPath) -> None:
    """Return once a file is on disk: a power cut doesn't take it back."""
    if not in_bucket(path) and path.exists():
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def damaged(path: AnyPath, reason: str) -> InputError:
    """Return the error for a file of a workdir that can't be read."""
    return InputError(f"{path} is damaged ({reason}): restore it, or move it away")


class Lines:
    """A file with a JSON object per line, whose last line may be incomplete after a kill."""

    def __init__(self, path: AnyPath) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """Return all records; the end of the file without a line end is what a kill left of a line.

        Another line that isn't a record is an error. What comes after it may be a finished run, so
        nothing goes on and nothing is written.
        """
        if not self.path.exists():
            return []
        records = []
        for number, line in enumerate(read(self.path).split(b"\n")[:-1], 1):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):  # neither JSON nor, of bytes, text
                record = None
            if not isinstance(record, dict):
                raise InputError(
                    f"{self.path} line {number} is not a JSON object: restore the file, or move "
                    "it away"
                )
            records.append(record)
        return records

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record; a partial line at the end is removed first."""
        append_line(self.path, json.dumps(record))

    def rewrite(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replace all records."""
        write(self.path, "".join(f"{json.dumps(record)}\n" for record in records))


@contextlib.contextmanager
def locked(folder: AnyPath, say: Callable[[str], None] = print) -> Iterator[None]:
    """Hold the lock of a run's folder, made if it is missing: one process trains it.

    It is `flock`, which the system releases with the process, however that ends. Buckets have no
    locks, and some file systems have none either: there two processes may train one run at once.
    """
    if in_bucket(folder):
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / "lock", "ab")  # noqa: SIM115 - closed below
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # so do some network file systems call it
            holder = read(folder / "lock").decode(errors="replace").strip() or "another process"
            raise InputError(
                f"{folder} is in use by {holder}: two processes that train the same run would "
                "overwrite each other"
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


@contextlib.contextmanager
def in_turn(folder: AnyPath) -> Iterator[None]:
    """Let one process after the other read and write what a folder, made if missing, is about."""
    with contextlib.ExitStack() as held:
        # In a bucket, or on a file system without locks, nobody waits; what can't be written is
        # reported when it is written.
        with contextlib.suppress(OSError):
            if not in_bucket(folder):
                folder.mkdir(parents=True, exist_ok=True)
                fcntl.flock(held.enter_context(open(folder / "lock", "ab")), fcntl.LOCK_EX)
        yield


def in_bucket(path: AnyPath) -> bool:
    """Tell whether it is an object, which is written whole and can't be locked."""
    return "://" in str(path)


def _whole(content: bytes) -> bytes:
    """The lines that have an end."""
    return content[: content.rfind(b"\n") + 1]


@functools.cache
def _bucket(address: str) -> epath.Path:
    scheme, _, rest = address.partition("://")
    if scheme != "gs" or not rest.strip("/"):
        raise InputError(f"workdir {address} is neither a local folder nor gs://BUCKET/FOLDER")
    need(f"workdir {address}", "gcs")
    path = epath.Path(address)
    try:
        path.exists()
    except Exception as error:  # whatever a missing login, bucket or network makes a client raise
        raise InputError(f"workdir {address} can't be reached ({error_text(error)})") from error
    return path
