"""Schemes as plain data, and as JSON files."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from mimetic_jax.base.errors import InputError, error_text, unknown
from mimetic_jax.base.typed import converted, shown
from mimetic_jax.schemes.base import REGISTRY, Interpolated, Scheme, as_tuple

_BY_DEPTH = "by_depth"


def to_dict(scheme: Scheme) -> dict[str, Any]:
    """Turn a scheme into plain data that JSON can store.

    Args:
        scheme: a scheme without functions.

    Returns:
        A dictionary with the name of the scheme and its fields.

    Example:
        >>> from mimetic_jax.schemes import SinCos
        >>> to_dict(SinCos(scale=2.0))
        {'scheme': 'SinCos', 'scale': 2.0, 'temperature': 10000.0, 'axes': 2, 'class_token': 0.0}

    Raises:
        InputError: if a field is a function or traced.
    """
    name = type(scheme).__name__
    fields = {
        field.name: _to_data(f"{name}.{field.name}", getattr(scheme, field.name))
        for field in dataclasses.fields(scheme)
    }
    return {"scheme": name, **fields}


def from_dict(data: Mapping[str, Any]) -> Scheme:
    """Make the scheme of data that `to_dict` gave, after JSON too: lists become tuples.

    Args:
        data: a mapping with the name of a scheme and its fields.

    Returns:
        The scheme.

    Example:
        >>> from mimetic_jax.schemes import Mimetic, NormMatched
        >>> from_dict(to_dict(NormMatched(Mimetic()))) == NormMatched(Mimetic())
        True

    Raises:
        InputError: for an unknown scheme or field, with the nearest name, a missing field, or one
            of another type than it declares. A scheme of your own is known once the module that
            defines it is imported.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"{shown(data)} is not the data of a scheme")
    fields = dict(data)
    name = fields.pop("scheme", None)
    if not isinstance(name, str) or name not in REGISTRY:
        raise unknown("scheme", name, REGISTRY)
    known = {field.name for field in dataclasses.fields(REGISTRY[name])}
    for field in fields:
        if field not in known:
            raise unknown(f"field of {name}", field, known)
    values = {field: _from_data(value) for field, value in fields.items()}
    try:
        inspect.signature(REGISTRY[name]).bind(**values)
    except TypeError as error:
        raise InputError(f"{name}: {error}") from error
    return REGISTRY[name](**values)


def save(path: str, scheme: Scheme | Sequence[Scheme]) -> None:
    """Write schemes into a JSON file, as `load` reads them.

    Args:
        path: the file; it is replaced.
        scheme: a scheme, or a tuple or list of schemes.

    Raises:
        InputError: as `to_dict`, or if the file can't be written.
    """
    data = [to_dict(part) for part in as_tuple(scheme)]
    path = converted("path", str, path)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(data, indent=1) + "\n")
    except (OSError, ValueError) as error:  # a ValueError of a path with NUL
        raise InputError(f"{path!r} can't be written ({error_text(error)})") from error


def load(path: str) -> tuple[Scheme, ...]:
    """Read the schemes of a JSON file, such as `mimetic fit FILE --out=FILE.json` writes.

    Args:
        path: the file.

    Returns:
        A tuple of schemes, for `rewrite` or an arm.

    Raises:
        InputError: the file isn't there or holds something else.
    """
    path = converted("path", str, path)
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{path!r} is not a JSON file of schemes ({error_text(error)})") from error
    if not isinstance(data, list) or not data:
        raise InputError(
            f"{path} must contain a list of schemes, as `mimetic fit --out=FILE.json` writes it"
        )
    return tuple(map(from_dict, data))


def _to_data(name: str, value: Any) -> Any:
    if isinstance(value, Scheme):
        return to_dict(value)
    if isinstance(value, tuple):
        return tuple(_to_data(name, item) for item in value)
    if isinstance(value, Interpolated):
        return {_BY_DEPTH: list(value.values)}
    if callable(value):
        raise InputError(f"{name} is a function, which cannot be stored; use Interpolated(numbers)")
    if isinstance(value, jax.core.Tracer):
        raise InputError(f"{name} is traced by jit or vmap, which can't be stored")
    return value


def _from_data(value: Any) -> Any:
    if isinstance(value, Mapping) and "scheme" in value:
        return from_dict(value)
    if isinstance(value, Mapping) and _BY_DEPTH in value:
        return Interpolated(_from_data(value[_BY_DEPTH]))
    return tuple(map(_from_data, value)) if isinstance(value, list | tuple) else value
