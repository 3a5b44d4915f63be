"""Every field of a configuration with its type, default, range and meaning."""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any

from ml_collections import ConfigDict

from mimetic_jax.table import aligned
from mimetic_jax.train.schema import Field, leaves, schema


def describe(config: ConfigDict) -> str:
    """What `--mode=fields` prints: a line per field, marked with * where it isn't the default.

    Raises:
        InputError: for an unknown task or model.
    """
    known, values = schema(config.task, config.model.name), dict(leaves(config))
    rows, changed = [("  field", "type", "default", "")], 0
    for name in sorted(values):
        field = known.get(name) or Field(name, Any, None, "", frozenset())
        value = tuple(values[name]) if name == "arms" else values[name]
        differs = value != (() if name == "arms" else field.default)
        changed += differs
        kind, within = kind_of(field.annotation)
        here = f"here {_shown(value)}; " if differs else ""
        text = f"{here}{field.help}{f' [{within}]' if within else ''}"
        default = () if name == "arms" else field.default
        rows.append((f"{'*' if differs else ' '} {name}", kind, _shown(default), text))
    return "\n".join(
        [
            *aligned(rows),
            "",
            f"{len(values)} fields of {config.name}; {changed}, marked *, differ from the default. "
            "Set one by --config.FIELD=VALUE",
        ]
    )


def kind_of(annotation: Any) -> tuple[str, str]:
    """A declared type and its range or choices, in words.

    >>> from mimetic_jax.typed import Range
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
    return found.lower(), str(within)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value) or '""'
