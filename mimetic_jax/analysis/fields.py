"""Every field of a configuration with its type, default, range and meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.table import aligned
from mimetic_jax.base.typed import described
from mimetic_jax.train.schema import Field, leaves, schema

_ROOM = 36
"""Columns of a field with its value, beside which there is room for its meaning."""


def describe(config: ConfigDict, words: Sequence[str] = ()) -> str:
    """Return what `--mode=fields` prints: what the configuration sets, then all other fields by
    topic.

    All words must be in the name or the meaning of a field that is printed.
    """
    # Fields of the model that the config names; its name differs if it isn't the task's own.
    known = schema(config.task, config.model.name)
    known = {**known, "model.name": schema(config.task)["model.name"]}
    changed: list[tuple[str, str]] = []
    topics: dict[str, list[tuple[str, str, str]]] = {}
    for name, value in sorted(leaves(config)):
        field = known.get(name) or Field(name, Any, None, "", frozenset())
        default = () if name == "arms" else field.default
        value = tuple(value) if name == "arms" else value
        takes = described(field.annotation).removeprefix("a ").removeprefix("an ")
        kind = "" if field.annotation is Any else f"[{takes}]"
        about = f"{field.help} {kind}".strip()
        if not all(word.lower() in f"{name} {field.help}".lower() for word in words):
            continue
        if value != default:
            said = f"{about}; default {_shown(default)}" if name in known else about
            given = f"  {name}={_shown(value)}"
            long = f"  {name}", f"{_shown(value)}; {said}"
            changed.append((given, said) if len(given) <= _ROOM else long)
        else:
            topic, _, last = name.rpartition(".")
            topics.setdefault(topic, []).append((f"  {last}", _shown(default), about))
    if words and not changed and not topics:
        raise InputError(f"no field of {config.name} has {' and '.join(words)} in its help")
    lines = [f"{config.name} sets", *(aligned(changed, wrapped=1) if changed else ["  nothing"])]
    for topic, rows in sorted(topics.items()):
        lines += ["", f"defaults{topic and f' of {topic}'}", *aligned(rows, wrapped=2)]
    count = len(changed) + sum(map(len, topics.values()))
    having = f" with {' and '.join(words)}" if words else ""
    return "\n".join(
        [
            *lines,
            "",
            f"{count} fields{having}, of which {config.name} sets {len(changed)}.",
            "Set one by its whole name: --config.optimizer.learning_rate=1e-3",
        ]
    )


def _shown(value: Any) -> str:
    return "none" if value is None else str(value) or '""'
