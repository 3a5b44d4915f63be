"""Places: everything that is read or written below a workdir passes here."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import os
import pathlib
import socket
from typing import IO, TypeAlias

from etils import epath

from mimetic_jax.base.errors import InputError, check_given, error_text
from mimetic_jax.base.extras import need
from mimetic_jax.base.typed import shown
from mimetic_jax.data.home import expanded

AnyPath: TypeAlias = pathlib.Path | epath.Path
"""On a disk, or in a bucket."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A path in a workdir, which is a local folder or `gs://BUCKET/…`.

    >>> str(Place.of("runs/digits") / "runs" / "default" / "0")
    'runs/digits/runs/default/0'
    """

    path: AnyPath

    @classmethod
    def of(cls, path: str | os.PathLike[str] | Place) -> Place:
        """The place of a workdir; "~" is the home folder.

        Raises:
            InputError: an empty path, or a bucket that isn't in Google's store or can't be reached.
        """
        if isinstance(path, Place):
            return path
        if isinstance(path, os.PathLike):
            return cls(pathlib.Path(path))
        if not isinstance(path, str):
            raise InputError(f"workdir {shown(path)} is not a path")
        check_given("workdir", path)
        return cls(_bucket(path) if "://" in path else expanded(path))

    def __truediv__(self, name: str) -> Place:
        return Place(self.path / name)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def parent(self) -> Place:
        return Place(self.path.parent)

    @property
    def in_bucket(self) -> bool:
        """Whether it is an object, which is written whole and can't be locked."""
        return "://" in str(self.path)

    def exists(self) -> bool:
        return self.path.exists()

    def names(self) -> list[str]:
        """The names in the folder, sorted; none if it is missing."""
        return sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else []

    def make(self) -> None:
        """Make the folder, with those above it."""
        self.path.mkdir(parents=True, exist_ok=True)

    def read(self) -> bytes:
        """The content of the file.

        Raises:
            InputError: it can't be read.
        """
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise InputError(f"{self} can't be read: {error.strerror or error}") from error

    def write(self, content: str | bytes) -> None:
        """Write the file so that a reader, even after a kill, sees the old content or the new."""
        content = content.encode() if isinstance(content, str) else content
        if self.in_bucket:  # objects are like that
            self.path.write_bytes(content)
            return
        # A name of its own: jobs that share a workdir write its summary at the same time.
        draft = self.path.with_name(f"{self.name}.{socket.gethostname()}.{os.getpid()}.new")
        try:
            with open(draft, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def append_line(self, line: str) -> None:
        """Append a line to the file, without what a kill left of another one.

        Where the disk is full, nothing is appended. Processes that append take turns.
        """
        text = f"{line}\n".encode()
        if self.in_bucket:  # objects can't be added to
            self.path.write_bytes(_whole(self.path.read_bytes() if self.exists() else b"") + text)
            return
        with open(self.path, "a+b", buffering=0) as file:
            with contextlib.suppress(OSError):  # a file system without locks
                flock(file, fcntl.LOCK_EX)
            end = _end_of_lines(file)
            file.truncate(end)
            try:
                while text:
                    text = text[file.write(text) :]
            except OSError:
                file.truncate(end)
                raise

    def sync(self) -> None:
        """Return once the file is on disk: a power cut doesn't take it back."""
        if not self.in_bucket and self.exists():
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())


def damaged(place: Place, reason: str) -> InputError:
    """The error for a file of a workdir that can't be read."""
    return InputError(f"{place} is damaged ({reason}): restore it, or move it away")


def flock(file: IO[bytes], operation: int) -> None:
    """Lock an open file for this process.

    Raises:
        BlockingIOError: another process holds the lock, and `operation` doesn't wait for it.
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(file, operation)
    except PermissionError as error:  # what some network file systems call a held lock
        raise BlockingIOError(error.errno, error.strerror) from error


def _whole(content: bytes) -> bytes:
    """The lines that have an end."""
    return content[: content.rfind(b"\n") + 1]


def _end_of_lines(file: IO[bytes]) -> int:
    """The length of the file up to its last line end."""
    size = file.seek(0, os.SEEK_END)
    if not size:
        return 0
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return size
    file.seek(0)
    return len(_whole(file.read()))


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
