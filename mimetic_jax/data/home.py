"""Paths that a user writes, with "~" for a home folder."""

from __future__ import annotations

import functools
import os
import pathlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mimetic_jax.errors import InputError, said_by
from mimetic_jax.extras import need

if TYPE_CHECKING:
    from etils import epath

AnyPath: TypeAlias = "Path | epath.Path"
"""On a disk, or in a bucket."""

INSTALLED = {
    "digits": "comes with scikit-learn",
    "python_docs": "comes with Python",
    **dict.fromkeys(("dyck", "copying", "associative", "induction"), "is drawn from a key"),
}
"""Data sets that are read from no folder, and where they come from."""


def expanded(path: str) -> Path:
    """The path with the home folder in place of "~" or "~USER".

    Raises:
        InputError: there is no such user, the system takes no such path, or it is in a bucket.

    >>> expanded("data/cifar")
    PosixPath('data/cifar')
    """
    if address := re.match(r"([a-z][a-z\d]+):/+", path):
        how = "copy it to a disk first"
        if address[1] == "gs":
            bucket, _, below = path[address.end() :].partition("/")
            how = (
                f"data are read from folders: mount it, as by gcsfuse {bucket} DIR, and give "
                f"{pathlib.PurePosixPath('DIR', below)}"
            )
        raise InputError(f"{path} is not on a local disk: {how}")
    try:
        found = Path(path).expanduser()
        found.exists()
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path[:200]} can't be opened ({reason})") from error
    return found


@functools.cache
def reached(address: str, what: str) -> epath.Path:
    """A path in a bucket that can be read.

    Args:
        address: of it.
        what: is there, in the error.

    Raises:
        InputError: its extra isn't installed, or it can't be reached; the error has the reason.
    """
    need(f"{what} {address}", "gcs")
    from etils import epath

    path = epath.Path(address)
    try:
        path.exists()
    except Exception as error:  # whatever a missing login, bucket or network makes a client raise
        raise InputError(f"{what} {address} can't be reached ({said_by(error)})") from error
    return path


def existing(found: Path) -> Path:
    """The path, if there is a file or folder.

    Raises:
        InputError: there is none.
    """
    if not found.exists():
        raise InputError(f"there is no file or folder {found}")
    return found


def check_unused(name: str, data_dir: str | None, own: str) -> None:
    """Check that no folder is given for a data set of `INSTALLED`.

    Args:
        name: of the data set.
        data_dir: what is given.
        own: names of the sets that read such a folder.

    Raises:
        InputError: there is one: the caller would train on other data than it names.
    """
    if data_dir:
        raise InputError(
            f"data.dir {data_dir} is not used: {name} {INSTALLED[name]}; for data of your own set "
            f"data.name to {own}"
        )


def name_of(path: Path) -> str:
    """The name of the data in a folder or file: of the folder itself for "." and "..", too.

    >>> name_of(Path("data/flowers/../tulips.txt"))
    'tulips'
    """
    return Path(os.path.abspath(path)).stem
