"""Attention per head, beside the impulse that each head should attend to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.offsets import by_offset, hits
from mimetic_jax.errors import InputError, unknown
from mimetic_jax.train.store.places import AnyPath
from mimetic_jax.weights.impulse import offsets

_REACH = 4
"""Offsets are shown up to this many rows and columns."""

_VIEWS = {"map": "query × key", "offset": "key − query"}


def draw(
    path: AnyPath,
    maps: Mapping[str, Sequence[np.ndarray]],
    grid: tuple[int, int],
    *,
    layers: Sequence[int] = (),
    views: Sequence[str] = ("map", "offset"),
) -> list[AnyPath]:
    """Draw attention between patches: columns are labels × heads, rows layers × views.

    Above each column's panels stand hit and mass of the averaged map, for the offset that the
    released order gives to the head, impulse or not: see `analysis.offsets.hits`. Each view has one
    color scale.

    Args:
        path: of the files, without their suffix.
        maps: per label, [H, N, N] per layer, from `analysis.attention.attention_maps`; all labels
            have as many heads.
        grid: (h, w) of the patches, the last h·w of the N tokens.
        layers: numbers from 1; first, middle and last unless given.
        views: "map", patch by patch; "offset", averaged over pairs with the same key − query.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: for a layer that a label doesn't have, an unknown view, maps without such a
            grid, or if matplotlib isn't installed.

    Reference: Structured Initialization for Vision Transformers, figures 3 and 6.
    """
    for view in views:
        if view not in _VIEWS:
            raise unknown("view", view, _VIEWS)
    depth = min(map(len, maps.values()))
    layers = layers or sorted({1, (depth + 1) // 2, depth})
    shown = {label: style.chosen(layers, all_, label) for label, all_ in maps.items()}
    heads = [(label, head) for label, all_ in maps.items() for head in range(len(all_[0]))]
    seen = {
        (view, label, number): _seen(view, layer, grid)
        for view in views
        for label, group in shown.items()
        for number, layer in group.items()
    }
    tops = {
        view: style.limit(array for (kind, *_), array in seen.items() if kind == view)
        for view in views
    }
    cell = min(0.9, (style.PAGE - 0.9) / len(heads))
    height = (cell + 0.2) * len(layers) * len(views) + 0.3
    rows: list[list[object]] = []
    with style.canvas(cell * len(heads) + 0.9, height) as figure:
        axes = figure.subplots(len(layers) * len(views), len(heads), squeeze=False)
        images: dict[str, Any] = {}
        for column, (label, head) in enumerate(heads):
            for at, (number, layer) in enumerate(shown[label].items()):
                shares, masses = hits(layer, grid, offsets(3, len(layer)))
                for below, view in enumerate(views):
                    panel = axes[at * len(views) + below, column]
                    matrix = seen[view, label, number][head]
                    images[view] = style.positive(panel, matrix, tops[view])
                    if not below:
                        panel.set_title(_number(shares[head], masses[head]), pad=2)
                    if column == 0:
                        words = [f"layer {number}"] * (not below) + [_VIEWS[view]] * (
                            len(views) > 1
                        )
                        panel.set_ylabel("\n".join(words))
                    found = (label, number, head + 1, view, shares[head], masses[head])
                    rows += style.matrix_rows(found, matrix)
        for column, (label, head) in enumerate(heads):
            top = axes[0, column]
            top.set_title(f"{label}\nhead {head + 1}\n{top.get_title()}", pad=2)
        for below, view in enumerate(views):
            panels = axes[below :: len(views)].ravel().tolist()
            figure.colorbar(
                images[view],
                ax=panels if len(views) == 1 else axes[below, -1],
                extend="max",
                label="attention",
                aspect=50 if len(views) == 1 else 14,
                shrink=0.6 if len(views) == 1 else 1.0,
                pad=0.02,
            )
        figure.supxlabel("above each map: hit and mass of the head's impulse offset", fontsize=7)
        width = max(array.shape[-1] for array in seen.values())
        header = ["label", "layer", "head", "view", "hit", "mass", "row", *map(str, range(width))]
        return style.write(figure, path, header, rows)


def _seen(view: str, layer: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """What a view shows of a layer, [H, …, …]."""
    if layer.shape[-1] < (count := math.prod(grid)):
        raise InputError(f"maps of {layer.shape[-1]} tokens have no {grid[0]}x{grid[1]} grid")
    if view == "map":
        return layer[:, -count:, -count:]
    h, w = grid
    down, across = min(_REACH, h - 1), min(_REACH, w - 1)
    around = by_offset(layer, grid)
    return around[:, h - 1 - down : h + down, w - 1 - across : w + across]


def _number(share: float, mass: float) -> str:
    return f"{share:.2f} {mass:.2f}".replace("0.", ".")
