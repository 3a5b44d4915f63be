"""Fields of a configuration set by flags, as main.py sets them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mimetic_jax.errors import InputError, unknown

if TYPE_CHECKING:
    from ml_collections import ConfigDict


def set_field(config: ConfigDict, flag: str) -> None:
    """Apply a flag of the form --config.a.b=value.

    Raises:
        InputError: there is no such field, or the value has another type or is missing.
    """
    name, equals, text = flag.removeprefix("--config.").partition("=")
    if not equals:
        raise InputError(f"{flag} has no value: write {flag}=VALUE")
    node, parts = config, name.split(".")
    for depth, part in enumerate(parts):
        if part not in node:
            raise unknown("config field", name, [".".join([*parts[:depth], o]) for o in node])
        parent, node = node, node[part]
    try:
        value = text if parent.get_type(parts[-1]) is str else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text  # a word, as main.py takes it
    try:
        config.update_from_flattened_dict({name: value})
    except TypeError as error:
        raise InputError(f"{flag}: {str(error).splitlines()[0]}") from error
