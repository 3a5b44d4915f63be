"""Fields of a configuration that flags set, those of an arm too, and seeds."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.typed import converted
from mimetic_jax.command.expressions import parse_rules, parse_scheme
from mimetic_jax.schemes.base import as_tuple


def set_field(config: ConfigDict, flag: str) -> None:
    """Apply a flag of the form --config.a.b=value; --config.arms.NAME.a.b=value is for one arm.

    An arm of a new name joins the others: with nothing else set, it is the default one.
    """
    assign(config, *parse_field(config, flag))


def parse_field(config: ConfigDict, flag: str) -> tuple[str, Any]:
    """Return the name of the field that a flag sets, such as "optimizer.warmup", and its value.

    Without =VALUE a switch is true.
    """
    name, equals, text = flag.lstrip("-").removeprefix("config.").partition("=")
    arm, path = _parts(config, name)
    if not equals:
        if arm or _type_of(config, path) is not bool:
            raise InputError(f"{flag} has no value: write {flag}=VALUE")
        text = "true"
    return name, _value(config, path, text)


def assign(config: ConfigDict, name: str, value: Any) -> None:
    """Set a field, or that of an arm, by its name."""
    arm, path = _parts(config, name)
    kind = _type_of(config, path)
    if isinstance(kind, type) and issubclass(kind, ConfigDict):
        arm = next(iter(config.arms), "ARM")
        inside = f"{arm}.FIELD" if name == "arms" else next(iter(config[name]), "FIELD")
        raise InputError(f"{name} has fields of its own: write --config.{name}.{inside}=VALUE")
    if kind in (int, float, bool):
        value = converted(f"--config.{name}", kind, value)
    try:
        if not arm:
            config.update_from_flattened_dict({name: value})
            return
        for section in reversed([arm, *path]):
            value = {section: value}
        with config.arms.unlocked():
            config.arms.update(value)
    except TypeError as error:
        raise InputError(f"--config.{name}={value}: {str(error).splitlines()[0]}") from error


def _parts(config: ConfigDict, name: str) -> tuple[str, list[str]]:
    """The arm of a field, if it is one of an arm, and its path."""
    if not name.startswith("arms."):
        return "", name.split(".")
    name = name.removeprefix("arms.")
    known = [arm for arm in config.arms if name.startswith(f"{arm}.")]
    arm = max(known, key=len, default=name.partition(".")[0])  # a name may have dots in it
    if not (path := name.removeprefix(arm).strip(".")):
        raise InputError(f"--config.arms.{name} names no field: write --config.arms.{arm}.FIELD")
    return arm, path.split(".")


def _value(config: ConfigDict, path: Sequence[str], text: str) -> Any:
    """What a text means for a field: a scheme, rules, seeds, text, a switch, a literal or words."""
    kind, name = _type_of(config, path), ".".join(path)
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


def _type_of(config: ConfigDict, path: Sequence[str]) -> Any:
    """The type of a field, which a configuration must have."""
    parent, node = config, config
    for depth, name in enumerate(path):
        if not isinstance(node, ConfigDict) or name not in node:
            beside = node if isinstance(node, ConfigDict) else ()
            names = [".".join([*path[:depth], field]) for field in beside]
            raise unknown("config field", ".".join(path), names)
        parent, node = node, node[name]
    return parent.get_type(path[-1])


def parse_seeds(flag: str, text: str) -> tuple[int, ...]:
    """Return the seeds that a flag gives.

    They are numbers and ranges with commas between, or a `range` or a tuple as Python writes them.
    """
    if match := re.fullmatch(r"range\((?:(\d{1,10}), *)?(\d{1,10})\)", text):
        parts = [range(int(match[1] or 0), int(match[2]))]
    else:
        parts = [_of_part(part) for part in text.strip("()[] ").removesuffix(",").split(",")]
    if not all(parts) or max(map(max, parts)) >= 2**32:
        raise InputError(
            f"{flag}={text[:200]}; pass 0-7, range(8) or 0,1,2, all below 2^32; 8 is seed 8 alone"
        )
    seeds = [seed for part in parts for seed in part]
    if len(set(seeds)) < len(seeds):
        raise InputError(f"{flag}={text[:200]} names a seed twice")
    return tuple(seeds)


def _of_part(text: str) -> range:
    """The seeds of a number or a range such as 0-7; none of anything else."""
    match = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", text.strip())
    return range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
