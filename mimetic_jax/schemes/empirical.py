"""A scheme that draws MLPs like those of trained networks, and what is read of their files."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import jax
import numpy as np

from mimetic_jax.errors import InputError, said_by
from mimetic_jax.schemes.base import Block, Context, Scheme, both_or_none
from mimetic_jax.typed import converted, shown
from mimetic_jax.weights.empirical import PAIRS, SHARED, exchangeable_mlp

_Reader: TypeAlias = Callable[[str, Mapping[str, Any]], tuple[Any, Any]]


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

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        dim, hidden = block.shapes["mlp_in"]
        if block.shapes["mlp_out"] != (hidden, dim):
            raise InputError(
                f"mlp_in {(dim, hidden)} and mlp_out {block.shapes['mlp_out']} are not [D, F] and "
                "[F, D]"
            )
        mean, covariance = at_depth(read_statistics(self.file), context)
        first, second = exchangeable_mlp(key, dim, hidden, mean, covariance)
        return {
            "mlp_in": block["mlp_in"].std() * first,
            "mlp_out": block["mlp_out"].std() * second,
        }


def read_statistics(file: str) -> tuple[np.ndarray, np.ndarray]:
    """The means [L, 2] and covariances [L, 3, 4] of the MLPs of a population, layer by layer.

    Args:
        file: see `Empirical`.

    Returns:
        Both in the file's units, covariances in the order of `PAIRS` and `SHARED`.

    Raises:
        InputError: if the file can't be read or isn't of this kind.
    """
    return _statistics(file, _mlp)


def read_filters(file: str) -> tuple[np.ndarray, np.ndarray]:
    """The means [L, k²] and covariances [L, k², k²] of depthwise filters, layer by layer.

    Args:
        file: see `schemes.EmpiricalFilters`.

    Raises:
        InputError: if the file can't be read or isn't of this kind.
    """
    means, covariances = _statistics(file, _filters)
    count, pixels = means.shape
    if math.isqrt(pixels) ** 2 != pixels or covariances.shape != (count, pixels, pixels):
        raise InputError(
            f"{file}: means {means.shape} and covariances {covariances.shape} are not [L, k²] and "
            "[L, k², k²]"
        )
    return means, covariances


def at_depth(
    statistics: tuple[np.ndarray, np.ndarray], context: Context
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance at a layer's relative depth, between those of the two nearest layers.

    Covariances remain covariances, since these are a convex set.
    """
    depth = context.layer / max(context.num_layers - 1, 1)
    mean, covariance = (_between(depth, numbers) for numbers in statistics)
    return mean, covariance


def _statistics(file: str, reader: _Reader) -> tuple[np.ndarray, np.ndarray]:
    try:
        status = os.stat(file)
        return _read(file, reader, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise InputError(f"the statistics {file} can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # what paths, JSON and ragged arrays raise
        if isinstance(error, InputError):
            raise
        raise InputError(f"{shown(file)} isn't a file of statistics ({said_by(error)})") from error


@functools.lru_cache(maxsize=32)
def _read(file: str, reader: _Reader, modified: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of all layers; a file that changes has another time or size."""
    content = _fields(file, json.loads(Path(file).read_bytes()))
    layers = converted(f"{file}: layers", tuple[Any, ...], content.get("layers"))
    if not layers:
        raise InputError(f"{file}: it has no layers")
    places = [f"{file}: layers[{index}]" for index in range(len(layers))]
    read = [reader(at, _fields(at, layer)) for at, layer in zip(places, layers, strict=True)]
    means, covariances = zip(*read, strict=True)
    return np.array(means), np.array(covariances)


def _mlp(where: str, layer: Mapping[str, Any]) -> tuple[Any, Any]:
    mean = converted(f"{where}.mean", tuple[float, float], layer.get("mean"))
    rows = [_fields(f"{where}.{pair}", layer.get(pair)) for pair in PAIRS]
    covariance = [
        [converted(f"{where}.{pair}.{shared}", float, row.get(shared)) for shared in SHARED]
        for pair, row in zip(PAIRS, rows, strict=True)
    ]
    return mean, covariance


def _filters(where: str, layer: Mapping[str, Any]) -> tuple[Any, Any]:
    mean = converted(f"{where}.mean", tuple[float, ...], layer.get("mean"))
    covariance = converted(
        f"{where}.covariance", tuple[tuple[float, ...], ...], layer.get("covariance")
    )
    return mean, covariance


def _fields(where: str, data: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = converted(where, Mapping[str, Any], data)
    return found


def _between(depth: float, numbers: np.ndarray) -> np.ndarray:
    """The numbers [L, ...] at a relative depth."""
    place = depth * (len(numbers) - 1)
    below = min(int(place), len(numbers) - 1)
    above = min(below + 1, len(numbers) - 1)
    return numbers[below] + (place - below) * (numbers[above] - numbers[below])
