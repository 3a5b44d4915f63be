"""The attention map that equation 8 of the self-attention paper expects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.expected import expected_map
from mimetic_jax.analysis.offsets import self_and_ring
from mimetic_jax.train.store.places import AnyPath
from mimetic_jax.weights.position import sincos_2d

_LEAST = 1e-4
"""Where the logarithmic color scale begins."""


def draw(
    path: AnyPath,
    *,
    grid: tuple[int, int] = (16, 16),
    dim: int = 192,
    head_dim: int = 64,
    betas: Sequence[float] = (0.7, 0.395),
    gammas: Sequence[float] = (1.0, 2.0),
    measured: Mapping[str, np.ndarray] | None = None,
) -> list[AnyPath]:
    """Draw softmax((β D I + β P Pᵀ) / √K), with and without the term β D I, on a log color scale.

    P are sin-cos positions times γ. Above each panel stand the mean attention of a patch to itself
    and to the ring of its neighbors.

    Args:
        path: of the files, without their suffix.
        grid: (h, w) of the patches.
        dim: D.
        head_dim: K.
        betas: diagonals of W_Q W_Kᵀ: the paper's β, and what rank 64 leaves of it.
        gammas: factors of the positions, a row each.
        measured: maps to compare with, [N, N] per label, the last h·w tokens being the grid's; as
            many as fit go into a row of their own.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: for a D that isn't a multiple of 4, maps without such a grid, or if matplotlib
            isn't installed.

    Reference: Mimetic Initialization of Self-Attention Layers, eq. 8.
    """
    count = math.prod(grid)
    panels: list[list[tuple[str, np.ndarray]]] = []
    for gamma in gammas:
        position = sincos_2d(*grid, dim, scale=gamma)
        panels.append(
            [
                (
                    rf"$\beta$ = {beta:g}, $\gamma$ = {gamma:g}" + ("" if content else ", P alone"),
                    expected_map(position, head_dim, beta, content=content),
                )
                for content in (True, False)
                for beta in betas
            ]
        )
    if measured:
        panels.append([(label, matrix[-count:, -count:]) for label, matrix in measured.items()])
    columns = max(map(len, panels))
    cell = min(1.5, (style.PAGE - 0.7) / columns)
    rows: list[list[object]] = []
    with style.canvas(cell * columns + 0.7, (cell + 0.35) * len(panels)) as figure:
        from matplotlib.colors import LogNorm

        axes = figure.subplots(len(panels), columns, squeeze=False)
        for panel in axes.flat:
            panel.axis("off")
        for line, group in zip(axes, panels, strict=True):
            for panel, (label, matrix) in zip(line, group, strict=False):
                itself, ring = self_and_ring(matrix, grid)
                panel.axis("on")
                image = style.positive(panel, np.maximum(matrix, _LEAST), norm=LogNorm(_LEAST, 1))
                panel.set_title(f"{label}\nself {_short(itself)}, ring {_short(ring)}", pad=3)
                rows += style.matrix_rows((label.replace("$", ""), itself, ring), matrix)
        figure.colorbar(image, ax=axes, extend="min", shrink=0.7, label="attention", pad=0.01)
        header = ["label", "self", "ring", "query", *map(str, range(count))]
        return style.write(figure, path, header, rows)


def _short(share: float) -> str:
    return f"{share:.3f}".replace("0.", ".", 1) if share >= 0.0005 else f"{share:.0e}"
