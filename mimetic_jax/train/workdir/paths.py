"""Paths of a workdir: in a local folder, or in a bucket, `gs://BUCKET/…`."""

from __future__ import annotations

import errno
import importlib.util
import os
import pathlib
import socket
import stat
from typing import TypeAlias

from etils import epath

from mimetic_jax.data.home import expanded
from mimetic_jax.errors import InputError, check_given, said_by
from mimetic_jax.extras import need

AnyPath: TypeAlias = pathlib.Path | epath.Path


def as_path(text: str | AnyPath) -> AnyPath:
    """The path of a folder, local or in a bucket; "~" is the home folder.

    Raises:
        InputError: an empty path, or a bucket that can't be reached; the error names the reason.

    >>> str(as_path("runs/digits"))
    'runs/digits'
    """
    if not isinstance(text, str):
        return text
    check_given("workdir", text)
    if "://" not in text:
        return expanded(text)
    scheme, _, rest = text.partition("://")
    if scheme != "gs" or not rest.strip("/"):
        raise InputError(f"workdir {text} is neither a local folder nor gs://BUCKET/FOLDER")
    if not (importlib.util.find_spec("gcsfs") or importlib.util.find_spec("tensorflow")):
        need(f"workdir {text}", "gcs")
    found = epath.Path(text)
    try:
        found.exists()
    except Exception as error:  # whatever a missing login, bucket or network makes a client raise
        raise InputError(f"workdir {text} can't be reached ({said_by(error)})") from error
    return found


def in_bucket(path: AnyPath) -> bool:
    """Whether the path names an object, which is written whole and can't be locked."""
    return "://" in str(path)


def regular(path: str, flags: int) -> int:
    """The opener of files to write: no link or pipe that someone put in their place.

    Raises:
        OSError: the path is one.
    """
    if os.path.islink(path):  # O_NOFOLLOW sees one that appears now, but has no words for it
        raise OSError(errno.ELOOP, "Is a symbolic link", path)
    # Without O_NONBLOCK, opening a pipe waits until someone reads it.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Is no regular file", path)
    return descriptor


def write_atomically(path: AnyPath, text: str) -> None:
    """Write a file so that a reader, even after a kill, sees the old text or the new one."""
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: AnyPath, content: bytes) -> None:
    """`write_atomically` of bytes."""
    if in_bucket(path):  # objects are like that
        path.write_bytes(content)
        return
    # A name of its own: jobs that share a workdir write its summary at the same time.
    draft = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.new")
    try:
        with open(draft, "wb", opener=regular) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def append(path: AnyPath, text: str) -> None:
    """Append all of the text to a file or, where the disk is full, nothing."""
    if in_bucket(path):  # objects can't be added to
        path.write_text((path.read_text() if path.exists() else "") + text)
        return
    with open(path, "ab", buffering=0, opener=regular) as file:
        end, left = file.seek(0, os.SEEK_END), text.encode()
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            file.truncate(end)
            raise
