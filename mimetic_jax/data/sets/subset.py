"""Choosing part of a data set, the same share of every class."""

from __future__ import annotations

import numpy as np

from mimetic_jax.errors import InputError

_SUBSET = 2  # Keeps these numbers apart from those of `order`.


def balanced(
    labels: np.ndarray, *, fraction: float | None = None, per_class: int | None = None, seed: int
) -> np.ndarray:
    """Examples of a class-balanced part; a smaller part of the same seed lies within a larger.

    >>> balanced(np.array([0, 1, 0, 1, 0, 1]), per_class=1, seed=0).tolist()
    [3, 4]

    Args:
        labels: int [N].
        fraction: of each class, rounded, at least one example; in (0, 1].
        per_class: how many of each class; give this or `fraction`.
        seed: which examples, at least 0.

    Returns:
        int64, in rising order.

    Raises:
        InputError: neither or both of fraction and per_class, or more than a class holds.
    """
    if (fraction is None) == (per_class is None):
        raise InputError("give either fraction or per_class, to say how much to keep")
    if fraction is not None and not 0 < fraction <= 1:
        raise InputError(f"fraction {fraction} isn't above 0 and at most 1")
    if per_class is not None and per_class < 1:
        raise InputError(f"per_class {per_class} isn't at least 1")
    if seed < 0:
        raise InputError(f"seed {seed} isn't at least 0")
    kept = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = per_class if fraction is None else max(1, round(fraction * len(members)))
        assert count is not None
        if count > len(members):
            raise InputError(f"class {label} holds {len(members)} examples, not {count}")
        numbers = np.random.Philox(key=[seed, _SUBSET], counter=[0, int(label), 0, 0])
        shuffled = members[np.argsort(numbers.random_raw(len(members)), kind="stable")]
        kept.append(shuffled[:count])
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.int64)
