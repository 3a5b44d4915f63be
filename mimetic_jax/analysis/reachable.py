"""Which diagonals and noises the weight products of attention can have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.host.cores import limited_blas
from mimetic_jax.train.store.files import AnyPath


def reachable(
    seed: int,
    dim: int,
    ranks: Sequence[int],
    alphas: Sequence[float],
    betas: Sequence[float],
) -> np.ndarray:
    """Diagonal and noise of the best approximations of α Z + β I [D, D], [ranks, alphas, betas, 2].

    Z has entries of variance 1/D, one draw for all α and β. The two are the mean of the diagonal,
    and the standard deviation off it times √D, so that at full rank these are β and α.

    >>> reachable(0, 8, [8, 4], [0.0], [0.5])[:, 0, 0, 0].tolist()
    [0.5, 0.25]

    Reference: Mimetic Initialization of Self-Attention Layers, eqs. 5-7 and figure 3.
    """
    noise = np.random.default_rng(seed).normal(size=(dim, dim)) / np.sqrt(dim)
    reached = np.empty((len(ranks), len(alphas), len(betas), 2))
    with limited_blas():
        for i, alpha in enumerate(alphas):
            for j, beta in enumerate(betas):
                left, values, right = np.linalg.svd(alpha * noise + beta * np.eye(dim))
                left *= values
                for number, rank in enumerate(ranks):
                    reached[number, i, j] = _measured(left[:, :rank] @ right[:rank])
    return reached


def equal_factors(seed: int, dim: int, ranks: Sequence[int], scales: Sequence[float]) -> np.ndarray:
    """Diagonal and noise of s² Z Zᵀ: both factors the same random matrix, [ranks, scales, 2].

    Z is [D, K] with entries of variance 1/K, `scales` are values of s²: a line per rank, about s²
    and s² √(D / K).

    Reference: Mimetic Initialization of Self-Attention Layers, section 4 and figure 3.
    """
    draws = np.random.default_rng(seed)
    factors = [draws.normal(size=(dim, rank)) / np.sqrt(rank) for rank in ranks]
    points = np.stack([_measured(factor @ factor.T) for factor in factors])
    return points[:, None] * np.asarray(scales)[:, None]


def _measured(product: np.ndarray) -> np.ndarray:
    off = ~np.eye(len(product), dtype=bool)
    return np.array([product.diagonal().mean(), product[off].std() * np.sqrt(len(product))])


_GRID = tuple(tenths / 10 for tenths in range(11))


def draw(path: AnyPath, *, dim: int, ranks: Sequence[int]) -> list[AnyPath]:
    """Draw what α and β from 0 to 1 come to at each rank, and the line of equal random factors.

    A point is a pair of α and β (steps of 0.1) after factors of K columns, of at most five ranks,
    have met α Z + β I as well as they can; a line is s² Z Zᵀ, both factors the same random matrix,
    over s.

    Reference: Mimetic Initialization of Self-Attention Layers, figure 3.
    """
    points = reachable(0, dim, ranks, _GRID, _GRID)
    lines = equal_factors(0, dim, ranks, _GRID)
    rows: list[list[object]] = []
    with style.canvas(style.COLUMN, 2.7) as figure:
        axes = figure.subplots()
        for number, rank in enumerate(ranks):
            color, marker = style.COLORS[number % 5], style.MARKERS[number % 7]
            reached = points[number].reshape(-1, 2)
            axes.scatter(
                *reached.T, s=7, color=color, marker=marker, linewidth=0, label=f"K = {rank}"
            )
            axes.plot(*lines[number].T, color=color, linestyle="--", linewidth=1)
            for (i, j), (diagonal, noise) in zip(np.ndindex(11, 11), reached, strict=True):
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
