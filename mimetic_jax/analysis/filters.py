"""The covariance of depthwise filters over the channels of trained networks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mimetic_jax import paths
from mimetic_jax.analysis import style
from mimetic_jax.errors import InputError
from mimetic_jax.rewrite import blocks
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.start import initial_state
from mimetic_jax.train.store.places import AnyPath, Place
from mimetic_jax.train.store.runs import Run
from mimetic_jax.weights import empirical_covariance


def analyze(comparison: Comparison, workdir: Place) -> str:
    """The covariance of each arm's filters over its trained runs, as a table, a picture and a file.

    The picture and what `schemes.EmpiricalFilters` draws from are WORKDIR/filters/ARM.

    Raises:
        InputError: if no run is trained, or a model has no depthwise filters.
    """
    parts = []
    for name in comparison.arms:
        if text := report(workdir / "filters" / name, comparison, workdir, name):
            parts += [f"{name}\n{text[0]}", f"written: {', '.join(map(str, text[1]))}"]
    if not parts:
        raise InputError(f"{workdir} has no trained run: its filters are not there yet")
    return "\n".join(parts)


def report(
    path: Place | AnyPath, comparison: Comparison, workdir: Place, name: str
) -> tuple[str, list[AnyPath]] | None:
    """The filters of an arm's trained runs: a table, a picture, and what schemes draw from.

    Args:
        path: of the files, without their suffix.
        comparison: of the arm.
        workdir: of its runs.
        name: of the arm.

    Returns:
        The table, and PATH.png, PATH.csv and PATH.json; None where no run has a checkpoint.

    Raises:
        InputError: if the model has no depthwise filters.
    """
    comparison.recognize(workdir)
    arm, starts, ends = comparison.arms[name], [], []
    for seed in arm.config.seeds:
        trained = comparison.restored(Run.of(workdir, name, seed))
        if trained is not None:
            start = initial_state(arm.program, arm.config, name, seed, comparison.say)
            starts.append(start.variables["params"])
            ends.append(trained.variables["params"])
    if not ends:
        return None
    rules = arm.program.rules
    states = {"initial": pooled(starts, rules=rules), "trained": pooled(ends, rules=rules)}
    statistics = style.beside(path, "json")
    write_statistics(statistics, states["trained"])
    return _table(states["trained"], len(ends)), [*draw(path, states), statistics.path]


def pooled(trees: Iterable[Any], **options: Any) -> dict[str, np.ndarray]:
    """The depthwise filters of networks by layer, [k, k, C] with those of all networks together.

    Args:
        trees: parameters of networks of one form.
        **options: of `mimetic_jax.blocks`: rules, num_heads, num_kv_heads.

    Returns:
        Filters by block, from input to output: its path, with the index of a layer that `scan`
        stacks.

    Raises:
        InputError: as `blocks`; if there are no filters.

    Example:
        >>> tree = {"block_0": {"depthwise": {"kernel": np.ones((3, 3, 1, 8))}}}
        >>> {name: filters.shape for name, filters in pooled([tree, tree]).items()}
        {'block_0': (3, 3, 16)}
    """
    found: dict[str, list[np.ndarray]] = {}
    for tree in trees:
        for path, layer, block in blocks(tree, **options):
            if "depthwise" in block:
                found.setdefault(paths.of_layer(path, layer), []).append(
                    np.asarray(block["depthwise"])
                )
    if not found:
        raise InputError("the networks have no depthwise filters")
    names = sorted(found, key=paths.natural)
    return {name: np.concatenate(found[name], axis=-1) for name in names}


def write_statistics(path: Place | AnyPath, filters: Mapping[str, np.ndarray]) -> None:
    """Write what `schemes.EmpiricalFilters` draws from: mean and covariance per layer, as JSON.

    Args:
        path: of the file; its folder appears if need be.
        filters: of `pooled`.

    Raises:
        InputError: if a layer's shape isn't [k, k, C] with C ≥ 2.
    """
    layers = [
        {
            "name": name,
            "channels": found.shape[-1],
            "mean": found.mean(axis=-1).ravel().tolist(),
            "covariance": _covariance(found).tolist(),
        }
        for name, found in filters.items()
    ]
    style.put(path, json.dumps({"unit": "of the weights", "layers": layers}) + "\n")


def draw(path: Place | AnyPath, states: Mapping[str, Mapping[str, np.ndarray]]) -> list[AnyPath]:
    """Draw the covariances of pixels over channels: a row per state, a column per layer.

    Each is k² x k², pixels in row-major order: a block of k x k per pair of rows. Every picture has
    a color scale of its own, which ends at its largest entry off the diagonal, the number above it;
    the diagonal, the variances, may saturate.

    Args:
        path: of the files, without their suffix.
        states: filters of `pooled` per label, such as "initial" and "trained".

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: if matplotlib isn't installed.
    """
    columns = max(len(state) for state in states.values())
    rows: list[list[Any]] = []
    with style.matrices(len(states), columns, most=1.6, beside=0.3, over=0.2) as (figure, grid):
        for axes, (label, state) in zip(grid, states.items(), strict=True):
            axes[0].set_ylabel(label)
            for number, (panel, (name, filters)) in enumerate(
                zip(axes, state.items(), strict=True), 1
            ):
                matrix = _covariance(filters)
                largest = float(np.abs(matrix - np.diag(matrix.diagonal())).max())
                style.signed(panel, matrix, largest or 1.0)
                panel.set_title(f"layer {number}: {largest:.2g}")
                rows += style.matrix_rows([number, name, label], matrix)
        pixels = [f"pixel {index}" for index in range(len(rows[0]) - 4)]
        return style.write(figure, path, ["layer", "name", "state", "pixel", *pixels], rows)


def _covariance(filters: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.asarray(empirical_covariance(filters), np.float64)
    return found


def _table(filters: Mapping[str, np.ndarray], networks: int) -> str:
    lines = [
        f"filters of {networks} networks; standard deviations at the center and the corners",
        "  layer  filters  size   center  corners  share of the 3 largest directions",
    ]
    for number, found in enumerate(filters.values(), 1):
        size, width = len(found), found.shape[-1]
        sd = found.std(axis=-1, ddof=1)
        corners = sd[[0, 0, -1, -1], [0, -1, 0, -1]].mean()
        values = np.linalg.eigvalsh(_covariance(found))
        lines.append(
            f"  {number:5}  {width:7}  {size:4}  {sd[size // 2, size // 2]:7.4f}  "
            f"{corners:7.4f}  {values[-3:].sum() / values.sum():.2f}"
        )
    return "\n".join(lines)
