"""A scheme that draws MLPs like those of a trained population."""

from __future__ import annotations

import dataclasses
import functools
import json
import os

import jax
import numpy as np

from mimetic_jax.errors import InputError, said_by
from mimetic_jax.schemes.base import Block, Context, Scheme
from mimetic_jax.weights.empirical import PAIRS, SHARED, exchangeable_mlp


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
            planned or applied. Only its name is part of the scheme: a file that changes is another
            initialization under the same name.

    Example:
        >>> Empirical("population.json").writes(frozenset({"query", "key", "position"}))
        frozenset()

    Reference: ours, for what Mimetic Initialization of MLPs leaves open in section 4.
    """

    file: str

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        present = roles & {"mlp_in", "mlp_out"}
        if len(present) == 1:
            raise InputError(
                f"Empirical needs mlp_in and mlp_out but only {next(iter(present))} was found"
            )
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
    except OSError as error:
        raise InputError(f"the statistics {file} can't be read: {error.strerror}") from error
    return _read(file, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=32)
def _read(file: str, modified: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """As `read_statistics`; a file that changes has another time or size."""
    try:
        with open(file, encoding="utf-8") as stream:
            layers = json.load(stream)["layers"]
        means = np.array([layer["mean"] for layer in layers], np.float64)
        covariances = np.array(
            [[[layer[pair][shared] for shared in SHARED] for pair in PAIRS] for layer in layers],
            np.float64,
        )
    except OSError as error:
        raise InputError(f"the statistics {file} can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:  # what parsing raises
        raise InputError(
            f"{file} isn't the statistics of a population ({said_by(error)})"
        ) from error
    shapes = means.shape[1:], covariances.shape[1:]
    finite = np.isfinite(means).all() and np.isfinite(covariances).all()
    if shapes != ((2,), (3, 4)) or not finite:
        raise InputError(
            f"{file} isn't the statistics of a population (means {shapes[0]} and covariances "
            f"{shapes[1]} per layer must be (2,) and (3, 4) and finite)"
        )
    return means, covariances


def _at(depth: float, numbers: np.ndarray) -> np.ndarray:
    """The numbers [L, ...] at a relative depth, between those of the two nearest layers.

    Covariances remain covariances, since these are a convex set.
    """
    place = depth * (len(numbers) - 1)
    below = min(int(place), len(numbers) - 1)
    above = min(below + 1, len(numbers) - 1)
    return numbers[below] + (place - below) * (numbers[above] - numbers[below])
