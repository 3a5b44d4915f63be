"""Paths that a user writes, with "~" for a home folder."""

from __future__ import annotations

import os
from pathlib import Path

from mimetic_jax.errors import InputError


def expanded(path: str) -> Path:
    """The path with the home folder in place of "~" or "~USER".

    Raises:
        InputError: there is no such user, or the system takes no such path.

    >>> expanded("data/cifar")
    PosixPath('data/cifar')
    """
    try:
        found = Path(path).expanduser()
        found.exists()
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path[:200]} can't be opened ({reason})") from error
    return found


def name_of(path: Path) -> str:
    """The name of the data in a folder or file: of the folder itself for "." and "..", too.

    >>> name_of(Path("data/flowers/../tulips.tar"))
    'tulips'
    """
    return Path(os.path.abspath(path)).stem
