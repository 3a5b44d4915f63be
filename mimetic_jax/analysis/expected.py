"""The attention map that mimetic initialization is expected to give."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import numpy as np
import scipy.special

from mimetic_jax.analysis import style
from mimetic_jax.analysis.offsets import self_and_ring
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.weights.position import sincos_2d


def expected_map(
    position: jax.typing.ArrayLike, head_dim: int, beta: float, *, content: bool = True
) -> np.ndarray:
    """softmax((β D I + β P Pᵀ) / √K), the approximate expectation of a head's first map, [N, N].

    It takes tokens to be N(0, I) plus positions, and W_Q W_Kᵀ to have its diagonal β at full rank.
    At rank K the diagonal is that of `reachable`: .395 instead of .7 for D = 192 and K = 64.
    Without `content`, what a token's own content adds, the map is that of positions P [N, D] alone.

    Example:
        >>> expected_map(np.zeros((2, 4)), 4, 0.5).round(2).tolist()
        [[0.73, 0.27], [0.27, 0.73]]

    Reference: Mimetic Initialization of Self-Attention Layers, eq. 8.
    """
    table = np.asarray(position, np.float64)
    count, width = table.shape
    logits = beta * (table @ table.T) + (beta * width * np.eye(count) if content else 0)
    return scipy.special.softmax(logits / math.sqrt(head_dim), axis=-1)


_LEAST = 1e-4
"""Where the logarithmic color scale begins."""


def draw(
    path: AnyPath,
    *,
    grid: tuple[int, int],
    dim: int,
    head_dim: int,
    betas: Sequence[float],
    gammas: Sequence[float],
) -> list[AnyPath]:
    """Draw softmax((β D I + β P Pᵀ) / √K), with and without the term β D I, on a log color scale.

    P are sin-cos positions times γ. Above each panel stand the mean attention of a patch to itself
    and to the ring of its neighbors.

    Reference: Mimetic Initialization of Self-Attention Layers, eq. 8.
    """
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
    rows: list[list[object]] = []
    with style.matrices(len(panels), len(panels[0]), most=1.5, beside=0.7, over=0.35) as (
        figure,
        axes,
    ):
        from matplotlib.colors import LogNorm

        for line, group in zip(axes, panels, strict=True):
            for panel, (label, matrix) in zip(line, group, strict=True):
                itself, ring = self_and_ring(matrix, grid)
                image = style.positive(panel, np.maximum(matrix, _LEAST), norm=LogNorm(_LEAST, 1))
                panel.set_title(f"{label}\nself {_short(itself)}, ring {_short(ring)}", pad=3)
                rows += style.matrix_rows((label.replace("$", ""), itself, ring), matrix)
        figure.colorbar(image, ax=axes, extend="min", shrink=0.7, label="attention", pad=0.01)
        return style.write(figure, path, ["label", "self", "ring", "query"], rows)


def _short(share: float) -> str:
    return f"{share:.3f}".replace("0.", ".", 1) if share >= 0.0005 else f"{share:.0e}"
