"""Every field of a configuration: type, default, permitted range and comment, each from its source.

The comment of a field is written once: behind the line that sets its default, or in the docstring
of the class that has the field, which is the model's or that of an augmentation.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from mimetic_jax.data import Augmentation, Mixing
from mimetic_jax.errors import unknown
from mimetic_jax.models import find_model, model_fields
from mimetic_jax.table import aligned
from mimetic_jax.train.ranges import allowed


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a configuration.

    Attributes:
        name: with its path, such as "optimizer.warmup".
        type: of its values, "any" where it isn't declared.
        default: None if it has none.
        value: in the configuration.
        comment: its meaning; empty for a field that only this configuration has.
    """

    name: str
    type: str
    default: Any
    value: Any
    comment: str

    @property
    def changed(self) -> bool:
        """Whether the configuration has another value than the default."""
        return self.value != self.default

    @property
    def range(self) -> str:
        """Its permitted numbers in words; empty for what isn't a number, or for the model's."""
        value = self.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        within = allowed(self.name) if is_number or self.name == "optimizer.betas" else None
        return str(within or "")


def describe(config: ConfigDict, defaults: Mapping[str, Callable[[], ConfigDict]]) -> str:
    """What `--mode=fields` prints: a line per field, marked with * where it isn't the default.

    Args:
        config: any configuration.
        defaults: see `fields`.

    Raises:
        InputError: as `fields`.
    """
    found = fields(config, defaults)
    rows = [("  field", "type", "default", "")]
    for field in found:
        here = f"here {_shown(field.value)}; " if field.changed else ""
        within = f" [{field.range}]" if field.range else ""
        mark = "*" if field.changed else " "
        text = f"{here}{field.comment}{within}"
        rows.append((f"{mark} {field.name}", field.type, _shown(field.default), text))
    count = sum(field.changed for field in found)
    return "\n".join(
        [
            *aligned(rows),
            "",
            f"{len(found)} fields of {config.name}; {count}, marked *, differ from the default. "
            "Set one by --config.FIELD=VALUE",
        ]
    )


def fields(config: ConfigDict, defaults: Mapping[str, Callable[[], ConfigDict]]) -> list[Field]:
    """The fields of a configuration, in alphabetical order.

    Args:
        config: any configuration; the fields of its model are those that it has.
        defaults: by task, the function that sets every field to its default.

    Raises:
        InputError: for an unknown task or model.
    """
    if config.task not in defaults:
        raise unknown("task", config.task, defaults)
    function, model = defaults[config.task], config.model.name
    values = {name: value for name, _, value in _leaves(function())}
    values |= {f"model.{name}": value for name, value in model_fields(model).items()}
    comments = written(function)
    comments["model.name"] = comments.get("model", "")
    classes = {"data.augment": Augmentation, "data.mix": Mixing, "model": find_model(model)}
    for prefix, of in classes.items():
        comments |= {f"{prefix}.{name}": text for name, text in documented(of).items()}
    return [
        Field(name, kind, values.get(name), value, comments.get(name, ""))
        for name, kind, value in _leaves(config)
    ]


def written(function: Callable[[], ConfigDict]) -> dict[str, str]:
    """The comments of a function behind its lines `config.FIELD = VALUE`, by field.

    Where it starts from another function's fields, by `config = function()`, theirs are included.
    """
    source = textwrap.dedent(inspect.getsource(function))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    behind = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokens
        if token.type == tokenize.COMMENT
    }
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assign([ast.Name("config")], ast.Call(ast.Name(called))):
                start = getattr(sys.modules[function.__module__], called)
                found |= written(start) if inspect.isfunction(start) else {}
            case ast.Assign([ast.Attribute() as target]):
                if comment := behind.get(node.end_lineno or 0):
                    found[ast.unparse(target).removeprefix("config.")] = comment
    return found


def documented(of: type) -> dict[str, str]:
    """The fields that the docstring of a class describes under Args or Attributes.

    >>> documented(Mixing)["switch"]
    'probability of CutMix where both are on'
    """
    _, *sections = re.split(r"^(?:Args|Attributes):\n", inspect.getdoc(of) or "", flags=re.M)
    entries = "".join(sections).partition("\n\n")[0]
    return {
        name: " ".join(text.split()).removesuffix(".")
        for names, text in re.findall(r"^    ([\w, ]+): (.*(?:\n     .*)*)", entries, re.M)
        for name in names.split(", ")
    }


def _leaves(config: ConfigDict, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Name, type and value of every field; the arms by their names alone."""
    for name, value in config.items():
        kind = config.get_type(name)
        if name == "arms" and not prefix:
            yield name, "arms", tuple(value)
        elif isinstance(value, ConfigDict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "any" if kind is object else kind.__name__, value


def _shown(value: Any) -> str:
    return "none" if value is None else str(value) or '""'
