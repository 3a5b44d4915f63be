"""The one exception for input that can't be used."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator


class InputError(ValueError):
    """Input that can't be used. The message is one plain line with the offending values in it."""


@contextlib.contextmanager
def blaming(name: str) -> Iterator[None]:
    """Start the message of an InputError with the name of what raises it, unless that is empty.

    >>> with blaming("block_3/attention"):
    ...     raise InputError("its weights are not finite")
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: block_3/attention: its weights are not finite
    """
    try:
        yield
    except InputError as error:
        if not name:
            raise
        raise InputError(f"{name}: {error}") from error


def error_text(error: BaseException) -> str:
    """Return what an error of another library says, in one line, its type first.

    >>> error_text(ValueError("truncated"))
    'ValueError: truncated'
    >>> error_text(OSError())
    'OSError'
    """
    return " ".join(f"{type(error).__name__}: {error}".split())[:240].removesuffix(":")


def innermost(error: BaseException) -> str:
    """Return the message of the innermost InputError that led to an error, else its own, in one
    line."""
    message, link = " ".join(str(error).split()), error.__cause__ or error.__context__
    while link is not None:
        message = str(link) if isinstance(link, InputError) else message
        link = link.__cause__ or link.__context__
    return message


def check_given(name: str, path: str | None) -> None:
    """Check that a path isn't empty, as a shell's variable that isn't set, and has no NUL.

    >>> check_given("--workdir", "")
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: --workdir is empty; pass a path
    """
    if path is not None and not path.strip():
        raise InputError(f"{name} is empty; pass a path")
    if path is not None and "\0" in path:
        raise InputError(f"{name} {path!r} has a NUL character, which no path has")


def unknown(kind: str, name: object, known: Iterable[str], listed: str = "") -> InputError:
    """Make the error for a name that isn't one of `known`; it suggests the nearest one.

    If there are more names than fit into a line, it has the three nearest and the command that
    lists all. A name that is one word of a longer one suggests that one.

    >>> print(unknown("scheme", "Mimetik", ["Mimetic", "SinCos"]))
    unknown scheme 'Mimetik'; did you mean 'Mimetic'? Choose one of Mimetic, SinCos
    >>> print(unknown("field", "model.norm", ["model.rms_norm", "model.width"]))
    unknown field 'model.norm'; did you mean 'model.rms_norm'? Choose one of model.rms_norm,
    model.width
    >>> print(unknown("run", "b/1", [f"arm_{i}/1" for i in range(90)], "mimetic plan"))
    unknown run 'b/1'; did you mean 'arm_9/1', 'arm_8/1', 'arm_7/1'? `mimetic plan` lists all 90
    """
    names = sorted(known)
    every = f"Choose one of {', '.join(names)}"
    if many := len(every) > _LONG:
        every = f"`{listed}` lists all {len(names)}" if listed else f"There are {len(names)}"
    count, cutoff = (3, 0.0) if many else (1, 0.6)
    word = str(name).rpartition(".")[2]
    containing = [one for one in names if word in one.rpartition(".")[2].split("_")]
    nearest = containing[:3] or difflib.get_close_matches(str(name), names, count, cutoff)
    guess = f"; did you mean {', '.join(map(repr, nearest))}?" if nearest else "."
    return InputError(f"unknown {kind} {str(name)!r}{guess} {every}")


_LONG = 600
"""Characters of a message above which it has no list of all names."""


def check_no_pointer(path: object, start: bytes) -> None:
    """Raise InputError for a file of Git LFS whose content wasn't fetched, by its first bytes."""
    if start.startswith(b"version https://git-lfs"):
        raise InputError(
            f"{path} is a Git LFS pointer in place of the file: fetch the content with git lfs pull"
        )
