"""Arguments as messages name them: in Python's form, or as options of the command that runs."""

from __future__ import annotations

import contextlib
import contextvars
import shlex
from collections.abc import Iterator, Mapping

_options: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("options")


@contextlib.contextmanager
def given_as(options: Mapping[str, str]) -> Iterator[None]:
    """While this lasts, messages name arguments by the options of a command: {"rules": "--rules"}.

    An option whose values differ from Python's has their form: "--grid=HxW".
    """
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)


def argument(name: str, value: str = "") -> str:
    """An argument with its value, to be typed as it is; "…" stands for one that the caller knows.

    >>> argument("rules", 'mlp_rules(first="up")'), argument("num_heads")
    ('rules=mlp_rules(first="up")', 'num_heads')
    >>> with given_as({"rules": "--rules", "num_heads": "--heads"}):
    ...     argument("rules", 'mlp_rules(first="up")'), argument("num_heads", "…")
    ('--rules=\\'mlp_rules(first="up")\\'', '--heads=…')
    """
    option = _options.get({}).get(name)
    if option is None:
        return f"{name}={value}" if value else name
    if not value or "=" in option:
        return option
    return f"{option}={value if value == '…' else shlex.quote(value)}"
