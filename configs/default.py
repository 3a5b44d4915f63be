"""What each configuration starts from: every field with its default, and its own arguments.

The fields are declared in `mimetic_jax.train.fields`; `--mode=fields` lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.exits import Answered
from mimetic_jax.train.schema import default, model

__all__ = ["arguments", "default", "model"]


def arguments(
    text: str | None, choices: Mapping[str, Iterable[str]] | None = None, /, **defaults: Any
) -> ConfigDict:
    """The arguments of `--config=FILE.py:name=value,...`, typed like their defaults.

    >>> arguments("width=96", width=192, init="all").to_dict()
    {'init': 'all', 'width': 96}

    Args:
        text: what is given.
        choices: the values that some of them may have.
        defaults: by name.

    Raises:
        Answered: for "help", with all names and defaults.
        InputError: for an unknown name or choice, with the nearest one, or a value of another type.
    """
    if text == "help":
        raise Answered("\n".join(f"  {name}={value}" for name, value in defaults.items()))
    values = dict(defaults)
    for item in filter(None, (text or "").split(",")):
        name, equals, value = item.partition("=")
        if name not in defaults:
            raise unknown("config argument", name, defaults)
        kind = type(defaults[name])
        try:
            if not equals or (kind is bool and value not in ("True", "False")):
                raise ValueError
            values[name] = value == "True" if kind is bool else kind(value)
        except ValueError:
            raise InputError(f"config argument {item!r}: {name} takes a {kind.__name__}") from None
    for name, known in (choices or {}).items():
        if values[name] not in known:
            raise unknown(name, values[name], known)
    return ConfigDict(values)
