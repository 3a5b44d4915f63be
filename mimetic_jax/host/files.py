"""Local files opened so that nothing in their place blocks or misleads the caller.

A pipe that nobody writes to, or a device, would block a reader forever; a symbolic link that
another user planted in a shared folder would lead a writer to another file.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import IO, Any

NOT_REGULAR = "not a regular file"


def open_to_read(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file, or a link to one, for reading.

    Raises:
        OSError: there is none, or the path names a folder, a pipe, a socket or a device.
    """
    return open(path, "rb", opener=_reader)


def read_bytes(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """The content of a regular file.

    Args:
        path: of the file.
        most: bytes that it may have; any number unless given.

    Raises:
        OSError: as `open_to_read`, or it is larger.
    """
    with open_to_read(path) as file:
        content = file.read() if most is None else file.read(most + 1)
    if most is not None and len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", os.fspath(path))
    return content


def open_to_write(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> IO[bytes]:
    """Open a regular file for writing, which is made if it is missing; never through a link.

    Args:
        path: of the file.
        mode: "wb" to replace its content, "ab" to append, "r+b" to keep it.
        options: of `open`.

    Raises:
        OSError: the path names anything but a regular file.
    """
    return open(path, mode, opener=_writer, **options)


def _reader(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a pipe waits until someone writes to it.
    return _regular(path, os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))


def _writer(path: str, flags: int) -> int:
    if os.path.islink(path):  # O_NOFOLLOW refuses one that appears now, but has no words for it
        raise OSError(errno.ELOOP, "a symbolic link", path)
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return _regular(path, os.open(path, flags, 0o666))


def _regular(path: str, descriptor: int) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, NOT_REGULAR, path)
    return descriptor
