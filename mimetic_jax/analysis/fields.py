"""Every field of a configuration with its type, default, range and meaning."""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any

from ml_collections import ConfigDict

from mimetic_jax.base.table import aligned
from mimetic_jax.train.schema import Field, leaves, schema

_ROOM = 36
"""Columns of a field with its value, beside which there is room for its meaning."""


def describe(config: ConfigDict) -> str:
    """What `--mode=fields` prints: what the configuration sets, then all other fields by topic.

    Raises:
        InputError: for an unknown task or model.
    """
    # Fields of the model that the config names; its name differs where it isn't the task's own.
    known = schema(config.task, config.model.name)
    known = {**known, "model.name": schema(config.task)["model.name"]}
    changed: list[tuple[str, str]] = []
    topics: dict[str, list[tuple[str, str, str]]] = {}
    for name, value in sorted(leaves(config)):
        field = known.get(name) or Field(name, Any, None, "", frozenset())
        default = () if name == "arms" else field.default
        value = tuple(value) if name == "arms" else value
        kind, within = kind_of(field.annotation)
        about = f"{field.help or kind}{f' [{within}]' if within else ''}"
        if value != default:
            said = f"{about}; default {_shown(default)}" if name in known else about
            given = f"  {name}={_shown(value)}"
            long = f"  {name}", f"{_shown(value)}; {said}"
            changed.append((given, said) if len(given) <= _ROOM else long)
        else:
            topic, _, last = name.rpartition(".")
            topics.setdefault(topic, []).append((f"  {last}", _shown(default), about))
    lines = [f"{config.name} sets", *(aligned(changed, wrapped=1) if changed else ["  nothing"])]
    for topic, rows in sorted(topics.items()):
        lines += ["", f"defaults{topic and f' of {topic}'}", *aligned(rows, wrapped=2)]
    count = len(changed) + sum(map(len, topics.values()))
    return "\n".join(
        [
            *lines,
            "",
            f"{count} fields, of which {config.name} sets {len(changed)}.",
            "Set one by its whole name: --config.optimizer.learning_rate=1e-3",
        ]
    )


def kind_of(annotation: Any) -> tuple[str, str]:
    """A declared type and its range or choices, in words.

    >>> from mimetic_jax.base.typed import Range
    >>> kind_of(Annotated[int, Range(1)])
    ('int', 'at least 1')
    """
    within = ""
    if typing.get_origin(annotation) is Annotated:
        annotation, within = typing.get_args(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return "str", ", ".join(map(str, arguments))
    if origin in (typing.Union, types.UnionType):
        kinds = [kind_of(part) for part in arguments if part is not types.NoneType]
        return kinds[0][0], ", ".join(text for _, text in kinds if text) or str(within)
    named = {Any: "any", tuple: "tuple"}
    found = named.get(origin) or named.get(annotation) or getattr(annotation, "__name__", "any")
    return str(found).lower(), str(within)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value) or '""'
