"""Chooses a part of a data set: the same fraction, or number, of every class."""

from __future__ import annotations

import numpy as np

from mimetic_jax.errors import InputError

SEED = 0
"""Of the parts of data sets: the same for every run, whatever its seed."""

_SUBSET = 2  # Gives a seed other random numbers here than in `feed.order`.


def balanced(labels: np.ndarray, fraction: float, *, seed: int) -> np.ndarray:
    """Indices of a class-balanced part; with one seed, a smaller part is a subset of a larger.

    >>> balanced(np.array([0, 1, 0, 1, 0, 1]), 1 / 3, seed=0).tolist()
    [3, 4]

    Args:
        labels: int [N].
        fraction: of each class to keep, rounded, at least one example; in (0, 1].
        seed: chooses the examples; at least 0.

    Returns:
        int64, ascending.

    Raises:
        InputError: the fraction or the seed is out of its range.
    """
    if not 0 < fraction <= 1:
        raise InputError(f"fraction {fraction} isn't above 0 and at most 1")
    if seed < 0:
        raise InputError(f"seed {seed} isn't at least 0")
    kept = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = max(1, round(fraction * len(members)))
        numbers = np.random.Philox(key=[seed, _SUBSET], counter=[0, int(label), 0, 0])
        shuffled = members[np.argsort(numbers.random_raw(len(members)), kind="stable")]
        kept.append(shuffled[:count])
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.int64)
