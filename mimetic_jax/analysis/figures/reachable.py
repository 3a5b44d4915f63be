"""Reachable diagonals and noises of weight products, by rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.reachable import equal_factors, reachable
from mimetic_jax.train.store.places import AnyPath

_GRID = tuple(tenths / 10 for tenths in range(11))


def draw(
    path: AnyPath, *, dim: int = 192, ranks: Sequence[int] = (16, 32, 64, 192)
) -> list[AnyPath]:
    """Draw what α and β from 0 to 1 come to at each rank, and the line of equal random factors.

    A point is a pair of α and β (steps of .1) after factors of K columns have met α Z + β I as well
    as they can; a line is s² Z Zᵀ, both factors the same random matrix, over s.

    Args:
        path: of the files, without their suffix.
        dim: D.
        ranks: values of K, at most five.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: as `analysis.reachable.reachable`, or if matplotlib isn't installed.

    Reference: Mimetic Initialization of Self-Attention Layers, figure 3.
    """
    points = reachable(0, dim, ranks, _GRID, _GRID)
    lines = equal_factors(0, dim, ranks, _GRID)
    rows: list[list[object]] = []
    with style.canvas(style.COLUMN, 2.7) as figure:
        axes = figure.subplots()
        for number, rank in enumerate(ranks):
            color, marker = style.COLORS[number % 5], style.MARKERS[number % 7]
            found = points[number].reshape(-1, 2)
            axes.scatter(
                *found.T, s=7, color=color, marker=marker, linewidth=0, label=f"K = {rank}"
            )
            axes.plot(*lines[number].T, color=color, linestyle="--", linewidth=1)
            for (i, j), (diagonal, noise) in zip(np.ndindex(11, 11), found, strict=True):
                rows.append(["svd", rank, _GRID[i], _GRID[j], diagonal, noise])
            for scale, (diagonal, noise) in zip(_GRID, lines[number], strict=True):
                rows.append(["equal factors", rank, None, scale, diagonal, noise])
        axes.plot([], [], color="#555555", linestyle="--", linewidth=1, label="$W_Q = W_K = sZ$")
        axes.set_xlim(-0.03, 1.05)
        axes.set_ylim(-0.03, 1.25)
        axes.set_xlabel(r"diagonal of the product ($\beta$ at full rank)")
        axes.set_ylabel(r"noise off it, times $\sqrt{D}$ ($\alpha$ at full rank)")
        style.tidy(axes)
        figure.legend(loc="outside upper center", ncols=3, frameon=False, columnspacing=1)
        header = ["construction", "rank", "alpha", "beta", "diagonal", "noise"]
        return style.write(figure, path, header, rows)
