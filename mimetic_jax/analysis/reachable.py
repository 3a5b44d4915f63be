"""Which diagonals and noises the weight products of attention can have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimetic_jax.errors import InputError
from mimetic_jax.host.cores import limited_blas


def reachable(
    seed: int,
    dim: int,
    ranks: Sequence[int],
    alphas: Sequence[float],
    betas: Sequence[float],
) -> np.ndarray:
    """Diagonal and noise of the best rank-K approximation of α Z + β I.

    Z has entries of variance 1/D, one draw for all α and β.

    Args:
        seed: of Z.
        dim: D.
        ranks: values of K.
        alphas: values of α.
        betas: values of β.

    Returns:
        [ranks, alphas, betas, 2]: mean of the diagonal, and standard deviation off it times √D, so
        that at full rank these are β and α.

    Raises:
        InputError: if a rank isn't between 1 and D.

    Example:
        >>> reachable(0, 8, [8, 4], [0.0], [0.5])[:, 0, 0, 0].tolist()
        [0.5, 0.25]

    Reference: Mimetic Initialization of Self-Attention Layers, eqs. 5-7 and figure 3.
    """
    for rank in ranks:
        if not 1 <= rank <= dim:
            raise InputError(f"rank {rank} is not between 1 and dim {dim}")
    noise = np.random.default_rng(seed).normal(size=(dim, dim)) / np.sqrt(dim)
    found = np.empty((len(ranks), len(alphas), len(betas), 2))
    with limited_blas():
        for i, alpha in enumerate(alphas):
            for j, beta in enumerate(betas):
                left, values, right = np.linalg.svd(alpha * noise + beta * np.eye(dim))
                left *= values
                for number, rank in enumerate(ranks):
                    found[number, i, j] = _measured(left[:, :rank] @ right[:rank])
    return found


def equal_factors(seed: int, dim: int, ranks: Sequence[int], scales: Sequence[float]) -> np.ndarray:
    """Diagonal and noise of s² Z Zᵀ: both factors the same random matrix, the simple construction.

    Z is [D, K] with entries of variance 1/K.

    Args:
        seed: of Z.
        dim: D.
        ranks: values of K.
        scales: values of s².

    Returns:
        [ranks, scales, 2], as of `reachable`: a line per rank, about s² and s² √(D / K).

    Reference: Mimetic Initialization of Self-Attention Layers, section 4 and figure 3.
    """
    draws = np.random.default_rng(seed)
    factors = [draws.normal(size=(dim, rank)) / np.sqrt(rank) for rank in ranks]
    points = np.stack([_measured(factor @ factor.T) for factor in factors])
    return points[:, None] * np.asarray(scales)[:, None]


def _measured(product: np.ndarray) -> np.ndarray:
    off = ~np.eye(len(product), dtype=bool)
    return np.array([product.diagonal().mean(), product[off].std() * np.sqrt(len(product))])
