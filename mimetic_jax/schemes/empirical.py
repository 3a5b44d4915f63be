"""A scheme that draws MLPs like those of a trained population."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from mimetic_jax.errors import InputError, said_by
from mimetic_jax.host import files
from mimetic_jax.schemes.base import Block, Context, Scheme, both_or_none
from mimetic_jax.typed import converted, shown
from mimetic_jax.weights.empirical import PAIRS, SHARED, exchangeable_mlp

_LARGEST = 2**26
"""Bytes of a file of statistics; ours have a kilobyte per layer."""


@dataclasses.dataclass(frozen=True)
class Empirical(Scheme):
    """Both kernels of each MLP drawn with the mean and covariance of a trained population.

    The population's 12 covariances per layer (see `weights.empirical`) and two means don't depend
    on width: another width draws from the same numbers. They are in units of the standard deviation
    that each kernel had before training, and here multiply the standard deviation of the kernel
    that is replaced, as b of `MeanShift` does. Another depth interpolates them linearly between the
    two layers at the same relative depth l / (L − 1). Biases are unchanged.

    Attributes:
        file: a JSON file that `analysis.covariance.write_statistics` wrote, read when the scheme is
            planned or applied. Only its name is part of the scheme: if the file changes, the same
            scheme draws other weights.

    Example:
        >>> Empirical("population.json").writes(frozenset({"query", "key", "position"}))
        frozenset()

    Reference: ours, of covariances as in Mimetic Initialization of MLPs, figure 1.
    """

    by_depth: ClassVar[bool] = True
    file: str

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        present = both_or_none(roles, "mlp_in", "mlp_out")
        if present:
            read_statistics(self.file)
        return present

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        dim, hidden = block.shapes["mlp_in"]
        if block.shapes["mlp_out"] != (hidden, dim):
            raise InputError(
                f"mlp_in {(dim, hidden)} and mlp_out {block.shapes['mlp_out']} are not [D, F] and "
                "[F, D]"
            )
        means, covariances = read_statistics(self.file)
        depth = context.layer / max(context.num_layers - 1, 1)
        mean, covariance = (_at(depth, numbers) for numbers in (means, covariances))
        first, second = exchangeable_mlp(key, dim, hidden, mean, covariance)
        return {
            "mlp_in": block["mlp_in"].std() * first,
            "mlp_out": block["mlp_out"].std() * second,
        }


def read_statistics(file: str) -> tuple[np.ndarray, np.ndarray]:
    """The means [L, 2] and covariances [L, 3, 4] of the layers of a population.

    Args:
        file: see `Empirical`.

    Returns:
        Both in the file's units, covariances in the order of `PAIRS` and `SHARED`.

    Raises:
        InputError: if the file can't be read or isn't of this kind.
    """
    try:
        status = os.stat(file)
        return _read(file, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise InputError(f"the statistics {file} can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # what paths and JSON raise
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{shown(file)} isn't the statistics of a population ({said_by(error)})"
        ) from error


@functools.lru_cache(maxsize=32)
def _read(file: str, modified: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """As `read_statistics`; a file that changes has another time or size."""
    content = _fields(file, json.loads(files.read_bytes(file, _LARGEST)))
    layers = converted(f"{file}: layers", tuple[Any, ...], content.get("layers"))
    if not layers:
        raise InputError(f"{file}: it has no layers")
    means, covariances = [], []
    for index, layer in enumerate(layers):
        where = f"{file}: layers[{index}]"
        layer = _fields(where, layer)
        means.append(converted(f"{where}.mean", tuple[float, float], layer.get("mean")))
        for pair in PAIRS:
            row = _fields(f"{where}.{pair}", layer.get(pair))
            for shared in SHARED:
                number = converted(f"{where}.{pair}.{shared}", float, row.get(shared))
                covariances.append(number)
    return np.array(means), np.reshape(covariances, (len(layers), len(PAIRS), len(SHARED)))


def _fields(where: str, data: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = converted(where, Mapping[str, Any], data)
    return found


def _at(depth: float, numbers: np.ndarray) -> np.ndarray:
    """The numbers [L, ...] at a relative depth, between those of the two nearest layers.

    Covariances remain covariances, since these are a convex set.
    """
    place = depth * (len(numbers) - 1)
    below = min(int(place), len(numbers) - 1)
    above = min(below + 1, len(numbers) - 1)
    return numbers[below] + (place - below) * (numbers[above] - numbers[below])
