"""What a run's result depends on, as a few digits: runs of other digits aren't compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ml_collections import ConfigDict

    from launch.weights import Weights

_NO_RESULT = (
    *("name", "seeds", "log_every", "checkpoint_every", "keep_checkpoints", "keep_best"),
    *("max_dispatch", "tensorboard", "mesh", "members", "chunk", "together"),
)
_NO_DATA = ("dir", "threads", "strict", "max_pixels", "max_bytes")


def digest(config: ConfigDict, weights: Weights | None = None) -> str:
    """What the result of a run depends on, as 12 hexadecimal digits.

    That is the configuration of one arm, without names, seeds, cadences of saving, devices and
    folders, and without fields that are empty or zero: a field that a later version adds, off,
    changes nothing.

    Args:
        config: of the arm.
        weights: that `init_from` or a scheme names, if any; their content counts in place of their
            path.
    """
    from mimetic_jax.train.config import to_json  # costs the import of JAX, which a list spares

    record = to_json(config)
    record.pop("arms")
    if weights:  # in init_from, or in a scheme
        path = json.dumps(weights.path)[1:-1]
        record = json.loads(json.dumps(record).replace(path, weights.mark))
    return digest_of(record)


def digest_of(record: Mapping[str, Any]) -> str:
    """The same for the contents of a config.json, all arms together."""
    left = {name: value for name, value in record.items() if name not in _NO_RESULT}
    left["data"] = {name: value for name, value in left["data"].items() if name not in _NO_DATA}
    # In a scheme a zero says something.
    schemes = {name: left.pop(name) for name in ("scheme", "arms") if name in left}
    text = json.dumps({**_that_are_set(left), **schemes}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _that_are_set(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are neither empty nor zero, at every depth."""
    inner = {
        name: _that_are_set(value) if isinstance(value, Mapping) else value
        for name, value in record.items()
    }
    return {name: value for name, value in inner.items() if value}
