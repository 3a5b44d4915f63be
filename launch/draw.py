"""Draw a figure of a paper: PNG and CSV, from weights, activations or finished runs."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch.beside import as_result
from launch.registry import Entry, Spec
from launch.results import Results
from launch.training import Queue
from mimetic_jax.analysis.attention import attention_maps
from mimetic_jax.analysis.capture import Network, networks
from mimetic_jax.analysis.figures import DRAW
from mimetic_jax.analysis.rank import stable_ranks
from mimetic_jax.errors import InputError
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.report import ArmResult
from papers import FIGURES
from papers.record import Figure

Paths = list[pathlib.Path]

_IMAGES = 64
"""Test images over which maps are averaged."""


def draw(name: str, queue: Queue, wanted: Sequence[Entry], out: pathlib.Path) -> Paths:
    """Draw a figure.

    Args:
        name: such as "attention/figure3".
        queue: of its rows, trained as far as they are.
        wanted: its rows.
        out: folder of the files.

    Returns:
        The written files.

    Raises:
        InputError: if it needs runs, data or files that aren't there.
    """
    figure = FIGURES[name]
    small = "_small" * any(entry.spec.small for entry in wanted)
    path = out / f"{name.replace('/', '_')}{small}"
    path.parent.mkdir(parents=True, exist_ok=True)
    return _KINDS[figure.draw](figure, path, queue, wanted)


def _of_formulas(figure: Figure, path: pathlib.Path, queue: Queue, wanted: object) -> Paths:
    return list(DRAW[figure.draw](path, **figure.options))


def _of_results(
    figure: Figure, path: pathlib.Path, queue: Queue, wanted: Sequence[Entry]
) -> Paths:
    """Each row's finished runs."""
    found = [result for entry in wanted for result in _results(entry, queue)]
    if not found:
        raise InputError(f"no finished run of {wanted[0].table}: nothing to draw")
    return list(DRAW[figure.draw](path, found, **figure.options))


def _results(entry: Entry, queue: Queue) -> list[ArmResult]:
    digests = queue.digests[entry.spec]
    runs = {arm: queue.results.runs(entry.spec, arm, digest) for arm, digest in digests.items()}
    return [as_result(arm, lines, entry.row.label) for arm, lines in runs.items() if lines]
