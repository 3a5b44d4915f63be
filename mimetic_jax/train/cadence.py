"""What is due at which steps, for one run as for the members of a population."""

from __future__ import annotations

from collections.abc import Iterable

from ml_collections import ConfigDict


def eval_every(config: ConfigDict, steps_per_epoch: int) -> int:
    """Steps between two evaluations, given as steps or as epochs; 0 for none."""
    epochs = config.eval.every_epochs
    return config.eval.every or (max(1, round(epochs * steps_per_epoch)) if epochs else 0)


def next_due(step: int, end: int, cadences: Iterable[int]) -> int:
    """The next step at which something with one of these cadences is due, or the last.

    >>> next_due(7, 100, (10, 4, 0))
    8
    """
    return min([end, *(step - step % n + n for n in cadences if n)])
