"""Where a command writes: checked before its work."""

from __future__ import annotations

import os
import tempfile

from mimetic_jax.base.errors import InputError, check_given


def check_output(name: str, path: str | None, *suffixes: str) -> None:
    """Raise InputError unless a path can become a file with one of these suffixes, if it is given.

    >>> check_output("--png", "picture.jpg", ".png")
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: --png picture.jpg: the file's name must end in .png
    """
    check_given(name, path)
    if path is None:
        return
    if suffixes and not path.endswith(suffixes):
        raise InputError(f"{name} {path}: the file's name must end in {' or '.join(suffixes)}")
    if os.path.isdir(path):
        raise InputError(f"{name} {path} is a folder; pass the name of a file")
    if not os.path.isdir(folder := os.path.dirname(os.path.abspath(path))):
        raise InputError(f"{name} {path}: there is no folder {folder}")
    try:  # what permissions say isn't true of every file system
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(f"{name} {path}: nothing can be written into {folder}") from error
