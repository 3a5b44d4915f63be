"""JSON files of a workdir, read so that a damaged one is named and stays as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mimetic_jax.errors import InputError
from mimetic_jax.train.workdir.paths import AnyPath


def read_document(path: AnyPath, fields: Mapping[str, type]) -> dict[str, Any]:
    """Read a JSON file that holds one object.

    Args:
        path: of the file.
        fields: names that the object must have, with the types of their values.

    Raises:
        InputError: the file can't be read, isn't JSON or lacks a field; the error names it.
    """
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, getattr(error, "strerror", None) or "not JSON") from error
    if not isinstance(found, dict):
        raise damaged(path, f"a {type(found).__name__}, not an object")
    for name, kind in fields.items():
        if not isinstance(found.get(name), kind):
            raise damaged(path, f"{name} is no {kind.__name__}")
    return found


def read_config(path: AnyPath) -> dict[str, Any]:
    """Read the config.json of a workdir.

    Raises:
        InputError: as `read_document`.
    """
    record = read_document(path, {"arms": dict, "seeds": list, "name": str})
    if not all(isinstance(overrides, dict) for overrides in record["arms"].values()):
        raise damaged(path, "an arm is no object")
    if not all(type(seed) is int for seed in record["seeds"]):
        raise damaged(path, "a seed is no integer")
    return record


def damaged(path: AnyPath, reason: str) -> InputError:
    """The error for a file of a workdir that can't be read."""
    return InputError(f"{path} is damaged ({reason}): restore it, or move it away")
