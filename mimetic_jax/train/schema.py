"""What follows from the declarations of `fields`: defaults, checks, what configurations share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from ml_collections import ConfigDict, config_dict

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.typed import converted, field_types
from mimetic_jax.models import find_model, model_fields
from mimetic_jax.models.model import foreign_fields
from mimetic_jax.train.fields import (
    MODEL_RANGES,
    RESULT,
    TASKS,
    Affects,
    Fields,
    OfComparison,
    Section,
)


class Config(ConfigDict):
    """A `ConfigDict` whose fields, arms among them, stay in the order in which they are set."""

    def __init__(self, *arguments: Any, sort_keys: bool = False, **options: Any) -> None:
        super().__init__(*arguments, sort_keys=False, **options)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, Config(value) if type(value) is ConfigDict else value)


OF_COMPARISON = tuple(field.name for field in dataclasses.fields(OfComparison))
"""Fields that all arms of a comparison share."""


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a configuration, named with its path, such as "optimizer.warmup".

    Its annotation has its range, as `typed.converted` takes it; help is empty if a user's model
    doesn't document it.
    """

    name: str
    annotation: Any
    default: Any
    help: str
    affects: Affects


@functools.cache
def schema(task: str, model: str = "") -> dict[str, Field]:
    """Return the fields of a task, by name, with those of its default model unless another is
    given.

    >>> schema("images")["optimizer.warmup"].help
    'steps of rising rate; or set warmup_epochs'
    >>> sorted(schema("text")["data.dir"].affects)
    ['data']
    """
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    data, usual, defaults = TASKS[task]
    declared = {field.name: field for field in _of_section(Fields)}
    named = declared.pop("model")
    del declared["data"]
    every = [
        *declared.values(),
        *_of_section(data, "data."),
        dataclasses.replace(named, name="model.name", annotation=str, default=model or usual),
        *_of_model(model or usual),
    ]
    defaults = {"task": task, **defaults}
    return {
        field.name: dataclasses.replace(field, default=defaults.get(field.name, field.default))
        for field in every
    }


def default(task: str = "images") -> ConfigDict:
    """Every field of a task with its default: what each configuration starts from.

    >>> default("text").data.name, default().optimizer.warmup
    ('ptb_char', 0)

    Raises:
        InputError: for an unknown task.
    """
    config = Config()
    for name, field in schema(task).items():
        node, (*path, last) = config, name.split(".")
        for part in path:
            if part not in node:
                node[part] = Config()
            node = node[part]
        node[last] = _initial(field)
    return config


def model(name: str, **values: Any) -> ConfigDict:
    """Return `config.model` for one of our models, or for "package.module:Class".

    It holds the fields of the module with the defaults of its class, so that each can be set by
    `--config.model.FIELD=VALUE`. The trainer fills in what the data decides: classes, vocabulary.

    >>> model("vit", width=96).width, model("gpt").positions
    (96, 'sinusoidal')

    Raises:
        InputError: for an unknown model or field, with the nearest name.
    """
    fields = {field.name.removeprefix("model."): field for field in _of_model(name)}
    config = Config({"name": name, **{name: _initial(f) for name, f in fields.items()}})
    for field, value in values.items():
        if field not in fields:
            raise unknown(f"field of model {name}", field, fields)
        config[field] = value
    return config


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Name and value of every field, those of sections with their path; arms are one field.

    >>> dict(leaves({"batch": 8, "mesh": {"data": 1}}))
    {'batch': 8, 'mesh.data': 1}
    """
    for name, value in config.items():
        if isinstance(value, Mapping | ConfigDict) and prefix + name not in ("arms", "scheme"):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def check_declared(config: ConfigDict) -> None:
    """Check the name, type and range of every field of an arm, whether a flag or Python set it.

    A field of `config.model` may be one of another model, which is left out.
    """
    for name, value in (("task", config.task), ("model.name", config.model.name)):
        converted(name, str, value)
    known, values = schema(config.task, config.model.name), dict(leaves(config))
    for name, value in values.items():
        if name in known:
            absent = value is None and known[name].default is None
            if name != "arms" and not absent:
                converted(name, known[name].annotation, value)
        elif name.startswith("model."):
            # Raises if no model has the field.
            foreign_fields(config.model.name, [name.removeprefix("model.")])
        else:
            raise unknown("config field", name, known, "--mode=fields")
    for name in known:
        if name not in values and not name.startswith("model."):  # the model has its own defaults
            raise InputError(f"the config has no {name}: start from configs.default.default()")


def affecting(config_json: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the fields on which "data", "program" or "result" depend, by name.

    A field that isn't declared, such as one of another version, affects programs and results.
    """
    known = schema(config_json["task"]) if config_json["task"] in TASKS else {}
    return {
        name: value
        for name, value in leaves(config_json)
        if what in (known[name].affects if name in known else RESULT)
    }


def documented(owner: Any) -> dict[str, str]:
    """Return what a docstring, of a class or a function, says of fields under Args or Attributes.

    >>> from mimetic_jax.data import Mixing
    >>> documented(Mixing)["mixup"]
    'α of Beta(α, α), the distribution of the share λ that an image keeps; 0 for no mixup'
    """
    _, *sections = re.split(r"^(?:Args|Attributes):\n", inspect.getdoc(owner) or "", flags=re.M)
    entries = "".join(sections).partition("\n\n")[0]
    return {
        name: " ".join(text.split()).removesuffix(".")
        for names, text in re.findall(r"^    ([\w, ]+): (.*(?:\n     .*)*)", entries, re.M)
        for name in names.split(", ")
    }


def _of_section(owner: type, prefix: str = "") -> Iterator[Field]:
    """The fields of a section, or of a class that describes them in its docstring."""
    hints, help = field_types(owner), documented(owner)
    for field in dataclasses.fields(owner):
        name, declared, annotation = prefix + field.name, field.metadata, hints[field.name]
        if inner := declared.get("section"):
            yield from _of_section(inner, f"{name}.")
        elif not issubclass(owner, Section):
            if field.name != "size":  # which the data decides
                yield Field(name, annotation, field.default, help.get(field.name, ""), RESULT)
        else:
            if (affects := declared["affects"]) is None:
                affects = OfComparison.affects if name in OF_COMPARISON else owner.affects
            if within := declared["within"]:
                annotation = Annotated[annotation, within]
            yield Field(name, annotation, field.default, declared["help"], affects)


def _of_model(name: str) -> Iterator[Field]:
    help = documented(find_model(name).module_class)
    for field, value in model_fields(name).items():
        annotation: Any = type(value) if isinstance(value, bool | int | float | str) else Any
        if annotation in (int, float) and field in MODEL_RANGES:
            annotation = Annotated[annotation, MODEL_RANGES[field]]
        yield Field(f"model.{field}", annotation, value, help.get(field, ""), RESULT)


def _initial(field: Field) -> Any:
    """The default as a ConfigDict holds it."""
    if field.name == "arms":
        return Config()
    if field.default is not None:
        return field.default
    return config_dict.placeholder(str if field.annotation == str | None else object)
