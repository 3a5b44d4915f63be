"""A picture of each arm's start: weight products, and attention on an example."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.attention import attention_maps
from mimetic_jax.analysis.capture import Network
from mimetic_jax.errors import InputError
from mimetic_jax.rewrite import blocks
from mimetic_jax.train.compare import Arm, Comparison
from mimetic_jax.train.warm_start import initial_state
from mimetic_jax.train.workdir.paths import AnyPath

CLIP = 64
"""Products are shown up to this many rows and columns, as in the papers' figures."""


def analyze(comparison: Comparison, workdir: AnyPath) -> str:
    """Draw each arm's start: WORKDIR/schemes.png."""
    return draw(comparison, workdir / "schemes.png")


def draw(comparison: Comparison, path: AnyPath) -> str:
    """Draw a row for each arm at initialization, as PNG.

    First attention layer, first head: W_Q W_Kᵀ, W_V W_out (one color scale each, zero is white),
    the attention map over all tokens, or those of a window, and where the middle token looks, in
    the shape of the grid or window. Arms whose model has no attention say so.

    Args:
        comparison: its arms are the rows; its data gives the example.
        path: of the picture.

    Returns:
        A line that names the file.

    Raises:
        InputError: if no arm has attention, or matplotlib isn't installed.
    """
    comparison.recognize(path.parent)
    comparison.open()
    pictures = {name: _picture(comparison, arm) for name, arm in comparison.arms.items()}
    if not any(pictures.values()):
        models = {arm.config.model.name for arm in comparison.arms.values()}
        raise InputError(f"model {' and '.join(sorted(models))} has no attention to draw")
    with style.canvas(9, 2.1 * len(pictures)) as figure:
        grid = figure.subplots(len(pictures), 4, squeeze=False)
        for row, (name, picture) in zip(grid, pictures.items(), strict=True):
            _draw(row, name, picture)
        style.save(figure, path)
    return f"{len(pictures)} schemes drawn: {path}"


@dataclasses.dataclass(frozen=True)
class _Picture:
    query_key: np.ndarray
    value_out: np.ndarray
    attention: np.ndarray
    looks: np.ndarray  # attention of the middle token, [h, w]


def _picture(comparison: Comparison, arm: Arm) -> _Picture | None:
    seed = comparison.config.seeds[0]
    state = initial_state(arm.program, arm.config, arm.name, seed, comparison.say)
    found = products(jax.device_get(state.params), rules=arm.program.rules)
    if found is None:
        return None
    network = Network(arm, "initial", state.variables)
    attention = attention_maps(network.model, network.variables, network.inputs(1))[0][0]
    return _Picture(*found, attention, _looks(attention, arm.program.task.grid()))


def products(params: Any, **options: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """W_Q W_Kᵀ of the first head and W_V W_out, both [D, D], of the first attention layer.

    Args:
        params: a parameter tree; layers may be stacked, kernels fused, heads grouped.
        **options: those of `mimetic_jax.blocks`: rules, num_heads, num_kv_heads.

    Returns:
        The products; None if no layer has all four kernels.
    """
    for _, _, block in blocks(params, **options):
        if {"query", "key", "value", "out"} <= block.keys():
            query, key, value, out = (
                np.asarray(block[role]) for role in ("query", "key", "value", "out")
            )
            value = np.repeat(value, len(out) // value.shape[1], axis=1)
            return query[:, 0] @ key[:, 0].T, np.einsum("dhk,hke->de", value, out)
    return None


def _looks(attention: np.ndarray, grid: tuple[int, int] | None) -> np.ndarray:
    """Attention of the token in the middle of the grid, of the window, or of a text: [h, w]."""
    count = len(attention)
    side = math.isqrt(count)
    if grid is None or math.prod(grid) > count:
        grid = (side, side) if side**2 == count else (1, count)
    front = count - math.prod(grid)  # a class token
    middle = front + grid[0] // 2 * grid[1] + grid[1] // 2
    return attention[middle, front:].reshape(grid)


def _draw(row: Any, name: str, picture: _Picture | None) -> None:
    row[0].set_ylabel(name, fontsize=9)
    if picture is None:
        for axes in row:
            axes.set_xticks([])
            axes.set_yticks([])
        row[0].set_title("no attention in this model")
        return
    _signed(row[0], picture.query_key[:CLIP, :CLIP], "W_Q W_Kᵀ, head 0")
    _signed(row[1], picture.value_out[:CLIP, :CLIP], "W_V W_out")
    _positive(row[2], picture.attention, "attention, head 0")
    _positive(row[3], picture.looks, "where the middle token looks")
    if len(picture.looks) == 1:  # a text: a line of one pixel's height would be invisible
        row[3].set_aspect("auto")


def _signed(axes: Any, matrix: np.ndarray, title: str) -> None:
    _finish(axes, style.signed(axes, matrix, style.limit([matrix], 1.0)), title)


def _positive(axes: Any, matrix: np.ndarray, title: str) -> None:
    _finish(axes, style.positive(axes, matrix), title)


def _finish(axes: Any, shown: Any, title: str) -> None:
    axes.set_title(title)
    axes.figure.colorbar(shown, ax=axes, shrink=0.8)
