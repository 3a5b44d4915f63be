"""The stable rank of what enters each block."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.capture import chunks, entering, plain
from mimetic_jax.base.errors import InputError
from mimetic_jax.host.cores import limited_blas
from mimetic_jax.models import Model
from mimetic_jax.train.store.files import AnyPath


@dataclasses.dataclass(frozen=True)
class StableRanks:
    """Stable ranks of the inputs of blocks.

    Attributes:
        ranks: per layer and example, [L, B].
        bounds: min(D, N) per layer, which no rank exceeds, [L].
    """

    ranks: np.ndarray
    bounds: np.ndarray


def stable_rank(matrix: np.ndarray) -> np.ndarray:
    """Σσ² / σ₁² of matrices [..., D, N]: their squared Frobenius norm over the largest σ squared.

    Between 1 and min(D, N), or 0 for a matrix of zeros. Nothing is subtracted, so a large mean
    makes it small.

    >>> float(stable_rank(np.diag([2.0, 1.0, 1.0])))
    1.5

    Reference: Structured Initialization for Vision Transformers, remark 1.
    """
    matrix = np.asarray(matrix, np.float64)
    if matrix.shape[-2] > matrix.shape[-1]:
        matrix = matrix.swapaxes(-2, -1)
    squares = (matrix**2).sum((-2, -1))
    with limited_blas():
        largest = np.linalg.eigvalsh(matrix @ matrix.swapaxes(-2, -1))[..., -1]
    return np.divide(squares, largest, out=np.zeros_like(squares), where=largest > 0)


def stable_ranks(model: Model, variables: Mapping[str, Any], inputs: jax.Array) -> StableRanks:
    """The stable rank of X [D, N] before each block, for every example.

    All tokens count, the class token included.

    Raises:
        InputError: if the model has no blocks that are named block_0 …, or blocks, as all of ours.

    Reference: Structured Initialization for Vision Transformers, remark 1.
    """
    model, variables = plain(model, variables)
    into_blocks = jax.jit(lambda variables, part: entering(r"block_\d+", model, variables, part))
    parts, bounds = [], np.zeros(0, int)
    for part in chunks(inputs):
        found = into_blocks(variables, part)  # [B, N, D] or [B, h, w, D] each
        layers = [np.asarray(x).reshape(len(part), -1, x.shape[-1]) for x in found]
        if not layers:
            raise InputError(f"model {model.name} has no blocks named block_0, block_1 …")
        parts.append(np.stack([stable_rank(x) for x in layers]))
        bounds = np.array([min(x.shape[1:]) for x in layers])
    return StableRanks(np.concatenate(parts, axis=1), bounds)


def draw(path: AnyPath, ranks: Mapping[str, StableRanks]) -> list[AnyPath]:
    """Draw the stable rank of what enters each block, mean ± sd over examples, beside its bound.

    Reference: Structured Initialization for Vision Transformers, remark 1.
    """
    rows = []
    with style.canvas(style.COLUMN, 2.6) as figure:
        axes = figure.subplots()
        bounds = set()
        for label, line in style.line_styles(ranks).items():
            found = ranks[label]
            layers = np.arange(1, len(found.bounds) + 1)
            mean, sd = found.ranks.mean(1), found.ranks.std(1)
            axes.plot(layers, mean, label=label, **line)
            low = np.maximum(mean - sd, 1)  # no stable rank is below 1
            axes.fill_between(layers, low, mean + sd, color=line["color"], alpha=0.2, linewidth=0)
            bounds.add(tuple(found.bounds.tolist()))
            rows += [
                [label, layer, mean[layer - 1], sd[layer - 1], found.bounds[layer - 1]]
                for layer in layers.tolist()
            ]
        for bound in sorted(bounds):
            dashes = {"color": "#777777", "linewidth": 0.8, "dashes": (6, 2)}
            axes.plot(range(1, len(bound) + 1), bound, **dashes)
            axes.annotate(
                "min(D, N)", (1, bound[0]), (0, -8), textcoords="offset points", color="#555555"
            )
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.9)
        highest = axes.get_ylim()[1]
        ticks = [digit * 10**power for power in range(4) for digit in (1, 2, 5)]
        axes.set_yticks([tick for tick in ticks if tick < highest])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(axes.yaxis.get_major_locator())
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("layer")
        axes.set_ylabel(r"stable rank of its input, $\Sigma\sigma^2 / \sigma_1^2$")
        style.tidy(axes)
        figure.legend(loc="outside upper center", ncols=3, frameon=False)
        return style.write(figure, path, ["label", "layer", "mean", "sd", "min(D, N)"], rows)
