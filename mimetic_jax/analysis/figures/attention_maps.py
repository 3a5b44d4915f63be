"""Attention maps averaged over heads and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.train.store.places import AnyPath


def draw(
    path: AnyPath, maps: Mapping[str, Sequence[np.ndarray]], layers: Sequence[int] = (1, 4, 11)
) -> list[AnyPath]:
    """Draw maps averaged over heads: a column per label and a row per layer, one color scale.

    Args:
        path: of the files, without their suffix.
        maps: per label, [H, N, N] per layer, from `analysis.attention.attention_maps`.
        layers: numbers from 1.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: for a layer that a label doesn't have, or if matplotlib isn't installed.

    Reference: Mimetic Initialization of Self-Attention Layers, figures 2 and 8.
    """
    shown = {
        label: style.chosen(layers, [layer.mean(0) for layer in found], label)
        for label, found in maps.items()
    }
    matrices = [matrix for group in shown.values() for matrix in group.values()]
    top = style.limit(matrices)
    depth, columns = max(map(len, shown.values())), len(shown)
    cell = min(1.5, (style.PAGE - 0.9) / columns)
    rows: list[list[object]] = []
    with style.canvas(cell * columns + 0.9, cell * depth + 0.4) as figure:
        axes = figure.subplots(depth, columns, squeeze=False)
        for column, (label, group) in enumerate(shown.items()):
            axes[0, column].set_title(label)
            for row, (number, matrix) in enumerate(group.items()):
                image = style.positive(axes[row, column], matrix, top)
                if column == 0:
                    axes[row, 0].set_ylabel(f"layer {number}\nquery")
                rows += style.matrix_rows((label, number), matrix)
            axes[-1, column].set_xlabel("key")
        figure.colorbar(image, ax=axes, extend="max", shrink=0.8, label="attention", pad=0.01)
        header = ["label", "layer", "query", *map(str, range(max(len(m) for m in matrices)))]
        return style.write(figure, path, header, rows)
