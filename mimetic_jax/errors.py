"""The one exception for input that can't be used."""

from __future__ import annotations

import contextlib
import difflib
import math
import operator
import sys
from collections.abc import Iterable, Iterator
from typing import Any


class InputError(ValueError):
    """Input that can't be used. The message is one plain line with the offending values in it."""


@contextlib.contextmanager
def blaming(name: str) -> Iterator[None]:
    """Start the message of an InputError with the name of what raises it, unless that is empty.

    >>> with blaming("block_3/attention"):
    ...     raise InputError("its weights are not finite")
    Traceback (most recent call last):
    mimetic_jax.errors.InputError: block_3/attention: its weights are not finite
    """
    try:
        yield
    except InputError as error:
        if not name:
            raise
        raise InputError(f"{name}: {error}") from error


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """End a command for bad input: one line on stderr and exit status 2.

    >>> with reported():
    ...     raise InputError("batch 0 is not positive")
    Traceback (most recent call last):
    SystemExit: 2
    """
    try:
        yield
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def said_by(error: BaseException) -> str:
    """What an error of another library says, in one line, its type first.

    >>> said_by(ValueError("truncated"))
    'ValueError: truncated'
    >>> said_by(OSError())
    'OSError'
    """
    return " ".join(f"{type(error).__name__}: {error}".split())[:240].removesuffix(":")


def innermost(error: BaseException) -> str:
    """The message of the innermost InputError that led to an error, else its own, in one line."""
    message, link = " ".join(str(error).split()), error.__cause__ or error.__context__
    while link is not None:
        message = str(link) if isinstance(link, InputError) else message
        link = link.__cause__ or link.__context__
    return message


def check_numbers(**values: object) -> None:
    """Check that these are real numbers, finite ones.

    >>> check_numbers(alpha=0.7, beta="0.7")
    Traceback (most recent call last):
    mimetic_jax.errors.InputError: beta '0.7' is not a finite number

    Raises:
        InputError: names the first that is none.
    """
    for name, value in values.items():
        try:
            finite = math.isfinite(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            finite = False
        if not finite:
            raise InputError(f"{name} {_shown(value)} is not a finite number")


def check_integers(**values: object) -> None:
    """Check that these are integers.

    >>> check_integers(dim=16, num_heads=2.0)
    Traceback (most recent call last):
    mimetic_jax.errors.InputError: num_heads 2.0 is not an integer

    Raises:
        InputError: names the first that is none.
    """
    for name, value in values.items():
        try:
            operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise InputError(f"{name} {_shown(value)} is not an integer") from None


def check_counts(**values: Any) -> None:
    """Check that these are positive integers.

    >>> check_counts(num_heads=2, num_kv_heads=0)
    Traceback (most recent call last):
    mimetic_jax.errors.InputError: num_kv_heads 0 is not a positive integer

    Raises:
        InputError: names the first that is none.
    """
    check_integers(**values)
    for name, count in values.items():
        if isinstance(count, bool) or count < 1:
            raise InputError(f"{name} {count} is not a positive integer")


def check_pair(what: str, pair: object) -> None:
    """Check that this is two positive integers, as a grid (h, w) or the shape of a kernel.

    >>> check_pair("the grid", (14, 0))
    Traceback (most recent call last):
    mimetic_jax.errors.InputError: the grid (14, 0) is not two positive integers

    Raises:
        InputError: it isn't.
    """
    try:
        first, second = (operator.index(number) for number in pair)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        first = second = 0
    if first < 1 or second < 1:
        raise InputError(f"{what} {_shown(pair)} is not two positive integers")


def _shown(value: object) -> str:
    return " ".join(repr(value).split())[:80]


def check_given(name: str, path: str | None) -> None:
    """Check that a path isn't empty, which would mean the current folder, and has no NUL.

    >>> check_given("--workdir", "")
    Traceback (most recent call last):
    mimetic_jax.errors.InputError: --workdir is empty: give a path

    Args:
        name: of the flag or field, in the error.
        path: its value; empty where it comes from a shell's variable that isn't set. None is fine.

    Raises:
        InputError: it is empty, or no file system takes it.
    """
    if path is not None and not path.strip():
        raise InputError(f"{name} is empty: give a path")
    if path is not None and "\0" in path:
        raise InputError(f"{name} {path!r} has a NUL character, which no path has")


def unknown(kind: str, name: object, known: Iterable[str]) -> InputError:
    """The error for a name that isn't one of `known`; it suggests the nearest one.

    >>> print(unknown("scheme", "Mimetik", ["Mimetic", "SinCos"]))
    unknown scheme 'Mimetik': choose one of Mimetic, SinCos; did you mean 'Mimetic'?
    """
    names = sorted(known)
    message = f"unknown {kind} {str(name)!r}: choose one of {', '.join(names)}"
    nearest = difflib.get_close_matches(str(name), names, n=1)
    return InputError(message + (f"; did you mean {nearest[0]!r}?" if nearest else ""))
