"""The stable rank of what enters each block."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from mimetic_jax.analysis.capture import chunks, networks, plain, watched
from mimetic_jax.errors import InputError
from mimetic_jax.host.cores import limited_blas
from mimetic_jax.models import Model
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.places import AnyPath

_PER_CALL = 16  # examples at a time
_EXAMPLES = 64


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
    """Σσ² / σ₁², the squared Frobenius norm over the squared largest singular value.

    Args:
        matrix: [..., D, N]; nothing is subtracted, so a large mean makes the rank small.

    Returns:
        [...], between 1 and min(D, N); 0 for a matrix of zeros.

    Example:
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

    Args:
        model: whose blocks are named block_0 …, or blocks: all of ours.
        variables: "params" and the model's other collections.
        inputs: examples as the model is tested on them, [B, …].

    Raises:
        InputError: if the model has no such blocks.

    Reference: Structured Initialization for Vision Transformers, remark 1.
    """
    model, variables = plain(model, variables)
    entering = jax.jit(lambda variables, part: _entering(model, variables, part))
    parts, bounds = [], np.zeros(0, int)
    for part in chunks(inputs, _PER_CALL):
        inputs_of = entering(variables, part)
        layers = [np.asarray(x).reshape(len(part), -1, x.shape[-1]) for x in inputs_of]
        if not layers:
            raise InputError(f"model {model.name} has no blocks named block_0, block_1 …")
        parts.append(np.stack([stable_rank(x) for x in layers]))
        bounds = np.array([min(x.shape[1:]) for x in layers])
    return StableRanks(np.concatenate(parts, axis=1), bounds)


def _entering(model: Model, variables: Mapping[str, Any], inputs: jax.Array) -> list[jax.Array]:
    """[B, N, D] or [B, h, w, D] per block."""
    found: list[jax.Array] = []

    def watcher(
        call: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext
    ) -> Any:
        name = context.module.name or ""
        if context.method_name == "__call__" and re.fullmatch(r"block_\d+", name):
            found.append(args[0])
        return call(*args, **kwargs)

    watched(model, variables, inputs, watcher)
    return found


def analyze(comparison: Comparison, workdir: AnyPath) -> str:
    """A table of stable ranks per layer, of each arm at initialization and after training."""
    lines = []
    for network in networks(comparison, workdir):
        inputs = network.inputs(_EXAMPLES)
        found = stable_ranks(network.model, network.variables, inputs)
        lines += [
            f"{network.label}: stable rank of what enters each block, {len(inputs)} examples",
            "  layer   mean     sd  min(D, N)",
        ]
        lines += [
            f"  {number:5}  {ranks.mean():5.2f}  {ranks.std():5.2f}  {bound:9}"
            for number, (ranks, bound) in enumerate(zip(found.ranks, found.bounds, strict=True), 1)
        ]
    return "\n".join(lines)
