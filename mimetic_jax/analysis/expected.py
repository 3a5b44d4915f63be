"""The attention map that mimetic initialization is expected to give."""

from __future__ import annotations

import math

import jax
import numpy as np
import scipy.special

from mimetic_jax.errors import InputError


def expected_map(
    position: jax.typing.ArrayLike, head_dim: int, beta: float, *, content: bool = True
) -> np.ndarray:
    """softmax((β D I + β P Pᵀ) / √K), the approximate expectation of a head's first map.

    It takes tokens to be N(0, I) plus positions, and W_Q W_Kᵀ to have its diagonal β at full rank.
    At rank K the diagonal is that of `reachable`: .395 instead of .7 for D = 192 and K = 64.

    Args:
        position: P, [N, D].
        head_dim: K.
        beta: diagonal of W_Q W_Kᵀ.
        content: whether β D I counts: what a token's own content adds. Without it the map is that
            of positions alone.

    Returns:
        [N, N]; rows sum to 1.

    Raises:
        InputError: if P is no matrix.

    Example:
        >>> expected_map(np.zeros((2, 4)), 4, 0.5).round(2).tolist()
        [[0.73, 0.27], [0.27, 0.73]]

    Reference: Mimetic Initialization of Self-Attention Layers, eq. 8.
    """
    table = np.asarray(position, np.float64)
    if table.ndim != 2:
        raise InputError(f"positions of shape {table.shape} are not [N, D]")
    count, width = table.shape
    logits = beta * (table @ table.T) + (beta * width * np.eye(count) if content else 0)
    return scipy.special.softmax(logits / math.sqrt(head_dim), axis=-1)
