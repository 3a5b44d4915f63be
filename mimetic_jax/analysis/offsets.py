"""Attention by the place of the key as the query sees it: what an impulse is in a map."""

from __future__ import annotations

import math

import numpy as np

from mimetic_jax.errors import InputError


def by_offset(maps: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Attention averaged over all pairs of patches with the same key − query.

    Args:
        maps: [..., N, N], the last h·w tokens being the grid's, row by row.
        grid: (h, w).

    Returns:
        [..., 2h − 1, 2w − 1]; offset (m, n) is at (h − 1 + m, w − 1 + n).

    Raises:
        InputError: if there are fewer than h·w tokens.

    Example:
        >>> looks_right = np.array([[0.1, 0.9], [0.0, 1.0]])
        >>> by_offset(looks_right, (1, 2)).tolist()
        [[0.0, 0.55, 0.9]]

    Reference: Structured Initialization for Vision Transformers, figures 3 and 6.
    """
    h, w = grid
    maps = _patches(maps, grid).reshape(*maps.shape[:-2], h, w, h, w)
    found = np.empty((*maps.shape[:-4], 2 * h - 1, 2 * w - 1), maps.dtype)
    for m in range(1 - h, h):
        for n in range(1 - w, w):
            rows, columns = _inside(h, m), _inside(w, n)
            pairs = maps[..., rows[:, None], columns, rows[:, None] + m, columns + n]
            found[..., h - 1 + m, w - 1 + n] = pairs.mean((-2, -1))
    return found


def hits(
    maps: np.ndarray, grid: tuple[int, int], offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How often a head looks at its offset first, and how much attention is there.

    Only patches whose target is inside the grid count, and only attention between patches: what
    the class token gets is neither a hit nor mass.

    Args:
        maps: [..., H, N, N], the last h·w tokens being the grid's, row by row.
        grid: (h, w).
        offsets: (row, column) of each head's impulse, [H, 2], such as `weights.offsets` returns.

    Returns:
        The share of patches whose largest weight is at the offset [..., H], and the mean weight
        there [..., H].

    Raises:
        InputError: if there are fewer than h·w tokens, or not one offset per head.

    Example:
        >>> looks_right = np.array([[[0.1, 0.9], [0.0, 1.0]]])
        >>> [found.tolist() for found in hits(looks_right, (1, 2), np.array([[0, 1]]))]
        [[1.0], [0.9]]

    Reference: Structured Initialization for Vision Transformers, figure 3.
    """
    if len(offsets) != maps.shape[-3]:
        raise InputError(f"{len(offsets)} offsets for maps of {maps.shape[-3]} heads")
    h, w = grid
    patches = _patches(maps, grid)
    shares, masses = [], []
    for head, (m, n) in enumerate(np.asarray(offsets).tolist()):
        rows, columns = _inside(h, m), _inside(w, n)
        query = (rows[:, None] * w + columns).ravel()
        key = query + m * w + n
        chosen = patches[..., head, query, :]
        shares.append((chosen.argmax(-1) == key).mean(-1))
        masses.append(chosen[..., np.arange(len(query)), key].mean(-1))
    return np.stack(shares, -1), np.stack(masses, -1)


def self_and_ring(attention: np.ndarray, grid: tuple[int, int]) -> tuple[float, float]:
    """Mean attention of a patch to itself, and to the ring of its neighbors in the 3×3 square.

    Args:
        attention: [N, N], the last h·w tokens being the grid's, row by row.
        grid: (h, w).

    Returns:
        Means over patches; a patch at the border has fewer neighbors.

    Raises:
        InputError: if there are fewer than h·w tokens.

    Example:
        >>> self_and_ring(np.eye(4), (2, 2))
        (1.0, 0.0)
    """
    patches = _patches(attention, grid)
    row, column = np.divmod(np.arange(math.prod(grid)), grid[1])
    near = (abs(row - row[:, None]) <= 1) & (abs(column - column[:, None]) <= 1)
    itself = float(patches.diagonal().mean())
    return itself, float((patches * near).sum(1).mean()) - itself


def _inside(size: int, shift: int) -> np.ndarray:
    """The places of an axis whose target is on it."""
    return np.arange(max(-shift, 0), size - max(shift, 0))


def _patches(maps: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """The rows and columns of patches."""
    count = math.prod(grid)
    if maps.shape[-1] < count:
        raise InputError(f"maps of {maps.shape[-1]} tokens have no {grid[0]}x{grid[1]} grid")
    return maps[..., -count:, -count:]
