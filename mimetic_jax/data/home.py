"""Paths that a user writes, with "~" for a home folder."""

from __future__ import annotations

import os
from pathlib import Path

from mimetic_jax.errors import InputError

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
    if "://" in path:
        raise InputError(
            f"{path} is not on a local disk, and only workdirs are read from buckets: copy it to "
            f"one first, such as by gcloud storage cp --recursive {path} DIR"
        )
    try:
        found = Path(path).expanduser()
        found.exists()
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path[:200]} can't be opened ({reason})") from error
    return found


def existing(path: str) -> Path:
    """The path of a file or folder, as `expanded`.

    Raises:
        InputError: there is none, or it is a pipe, a device or the like; or as `expanded`.
    """
    found = expanded(path)
    if not (found.is_file() or found.is_dir()):
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

    >>> name_of(Path("data/flowers/../tulips.tar"))
    'tulips'
    """
    return Path(os.path.abspath(path)).stem
