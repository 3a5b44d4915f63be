"""Files that many threads read by ranges of bytes, on a disk or in a bucket."""

from __future__ import annotations

import io
import os
import threading
import weakref
from pathlib import Path
from typing import IO, Any, Protocol

from mimetic_jax.data.home import AnyPath
from mimetic_jax.errors import InputError, said_by
from mimetic_jax.host.files import open_to_read

_RETRIES = 6  # of a request that failed for a moment, after 1, 2, 4, ... 32 s
_BLOCK = 2**22  # bytes of a request for a file that is read from its start


class RangedFile(Protocol):
    """A file by ranges of its bytes, for any number of threads and processes.

    Attributes:
        size: its bytes.
        in_flight: reads at once that keep its source busy.
    """

    in_flight: int

    @property
    def size(self) -> int: ...

    def read(self, start: int, count: int) -> bytes:
        """Bytes from `start` on; fewer where the file ends.

        Raises:
            InputError: it can't be read.
        """
        ...

    def open(self) -> IO[bytes]:
        """The whole file, with a position of its own."""
        ...


def ranged(path: AnyPath) -> RangedFile:
    """A file by its path.

    Raises:
        InputError: there is none, or it may not be read.
    """
    if isinstance(path, Path):
        return DiskFile(path)
    return BucketFile(str(path), path.stat().length)


class DiskFile:
    """A file on a disk."""

    in_flight = 1

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._file: IO[bytes] | None = None

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor()).st_size

    def read(self, start: int, count: int) -> bytes:
        try:
            return os.pread(self._descriptor(), count, start)
        except OSError as error:
            raise InputError(f"can't read {self._path} ({error.strerror})") from error

    def open(self) -> IO[bytes]:
        try:
            return open_to_read(self._path)
        except OSError as error:
            raise InputError(f"can't read {self._path} ({error.strerror})") from error

    def _descriptor(self) -> int:
        with self._lock:
            if self._file is None:
                self._file = self.open()
                weakref.finalize(self, self._file.close)
            return self._file.fileno()

    def __reduce__(self) -> tuple[type, tuple[Path]]:
        return DiskFile, (self._path,)


class BucketFile:
    """A file in a bucket, by TensorStore: requests in C++, which don't wait for Python.

    Args:
        url: such as gs://BUCKET/FILE.
        size: its bytes.
    """

    in_flight = 64

    def __init__(self, url: str, size: int) -> None:
        import tensorstore

        self._url, self.size, self._generation = url, size, b""
        limits = {
            f"{kind}_request_{limit}": value
            for kind in ("gcs", "s3")
            for limit, value in (
                ("concurrency", {"limit": self.in_flight}),
                ("retries", {"max_retries": _RETRIES}),
            )
        }
        self._store = tensorstore.KvStore.open(url, context=tensorstore.Context(limits)).result()

    def read(self, start: int, count: int) -> bytes:
        end = min(start + count, self.size)
        if start >= end:
            return b""
        where = f"{self._url} can't be read from byte {start} to {end}"
        try:
            found = self._store.read("", byte_range=slice(start, end)).result()
        except Exception as error:  # of the network, of the service, of a login
            raise InputError(f"{where} ({said_by(error)})") from error
        self._generation = self._generation or found.stamp.generation
        if found.stamp.generation != self._generation:
            raise InputError(f"{where}: it was replaced or removed after it was opened")
        if len(found.value) != end - start:
            raise InputError(f"{where}: {len(found.value)} bytes came")
        return found.value

    def open(self) -> IO[bytes]:
        return io.BufferedReader(_Blocks(self), _BLOCK)

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return BucketFile, (self._url, self.size)


class _Blocks(io.RawIOBase):
    """A file from any position, for a buffer around it."""

    def __init__(self, file: BucketFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(self._at, len(buffer))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
