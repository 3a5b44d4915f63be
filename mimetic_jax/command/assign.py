"""Fields of a configuration that flags set, those of an arm too."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.command.expressions import parse_rules, parse_scheme
from mimetic_jax.command.seeds import parse_seeds
from mimetic_jax.schemes.base import as_tuple


def set_field(config: ConfigDict, flag: str) -> None:
    """Apply a flag of the form --config.a.b=value; --config.arms.NAME.a.b=value is for one arm.

    An arm of a new name joins the others: with nothing else set, it is the default one.

    Args:
        config: is changed.
        flag: one word of a command line; true if it is without =VALUE and the field is a switch.

    Raises:
        InputError: there is no such field, or the value has another type or is missing.
    """
    name, equals, text = flag.lstrip("-").removeprefix("config.").partition("=")
    arms, dot, rest = name.partition(".")
    if not equals:
        if (arms == "arms" and dot) or check_name(config, name.split(".")) is not bool:
            raise InputError(f"{flag} has no value: write {flag}=VALUE")
        text = "true"
    try:
        if arms == "arms" and dot:
            _set_of_arm(config, rest, text)
        else:
            config.update_from_flattened_dict({name: _value(config, name.split("."), text)})
    except TypeError as error:
        raise InputError(f"{flag}: {str(error).splitlines()[0]}") from error


def _set_of_arm(config: ConfigDict, name: str, text: str) -> None:
    known = [arm for arm in config.arms if name.startswith(f"{arm}.")]
    arm = max(known, key=len, default=name.partition(".")[0])  # a name may have dots in it
    *sections, field = name.removeprefix(arm).strip(".").split(".")
    if not field:
        raise InputError(f"--config.arms.{name} names no field: write --config.arms.{arm}.FIELD")
    value = _value(config, [*sections, field], text)
    for section in reversed([arm, *sections]):
        field, value = section, {field: value}
    with config.arms.unlocked():
        config.arms.update({field: value})


def _value(config: ConfigDict, path: Sequence[str], text: str) -> Any:
    """What a text means for a field: a scheme, rules, seeds, text, a switch, a literal or words."""
    kind, name = check_name(config, path), ".".join(path)
    if name == "scheme":
        return as_tuple(parse_scheme(text))
    if name == "rules" and re.match(r"\(?\*?[A-Za-z]", text):
        return parse_rules(text)
    if name == "seeds":
        return parse_seeds("--config.seeds", text)
    if kind is str:
        return text
    if kind is bool and text.lower() in _SWITCH:
        return _SWITCH[text.lower()]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = tuple(map(str.strip, text.split(","))) if kind is tuple else text
    if kind is tuple and not isinstance(value, tuple):
        value = tuple(value) if isinstance(value, list) else (value,)
    return value


_SWITCH = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def check_name(config: ConfigDict, path: Sequence[str]) -> Any:
    """Check that a configuration has a field; returns its type.

    Raises:
        InputError: it has none of that name; names the nearest.
    """
    parent, node = config, config
    for depth, name in enumerate(path):
        if not isinstance(node, ConfigDict) or name not in node:
            beside = node if isinstance(node, ConfigDict) else ()
            names = [".".join([*path[:depth], one]) for one in beside]
            raise unknown("config field", ".".join(path), names)
        parent, node = node, node[name]
    return parent.get_type(path[-1])
