"""Errors of the library, with the arguments that they name as the flags of a command."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Mapping

from mimetic_jax.base.errors import InputError

_EXPRESSION = re.compile(r"(?<![\w.])(rules|grid)=(?=\w*\()")
"""An argument with its value, which a shell takes in quotes alone."""


@contextlib.contextmanager
def naming_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """Raise errors of the library with flags for arguments, as one types them in a shell.

    >>> with naming_flags({"rules": "--rules", "num_heads": "--heads"}):
    ...     raise InputError('give rules=attention_rules(query="wq"), num_heads=…')
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: give --rules='attention_rules(query="wq")', --heads=…

    Args:
        flags: by the name of the argument.
    """
    try:
        yield
    except InputError as error:
        raise InputError(with_flags(str(error), flags)) from error


def with_flags(text: str, flags: Mapping[str, str]) -> str:
    """A text of the library, with flags for the arguments that it names."""
    if (found := _EXPRESSION.search(text)) and found[1] in flags:
        value, rest = _split(text[found.end() :])
        value = "HxW" if found[1] == "grid" else _quoted(value)
        before = with_flags(text[: found.start()], flags)
        return f"{before}{flags[found[1]]}={value}{with_flags(rest, flags)}"
    names = "|".join(name for name in flags if name.startswith("num_"))
    return re.sub(rf"\b({names})\b", lambda name: flags[name[1]], text)


def _quoted(value: str) -> str:
    plain = "'" in value and not set('"$`\\!') & set(value)
    return f'"{value}"' if plain else shlex.quote(value)


def _split(text: str) -> tuple[str, str]:
    """A text up to the end of its first pair of parentheses, and the rest."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == ")" and not depth:
            return text[: index + 1], text[index + 1 :]
    return text, ""
