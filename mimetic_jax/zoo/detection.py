"""Which table of rules fits a tree: for error messages, and for who doesn't know the names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mimetic_jax import paths
from mimetic_jax.rules import Rule

_PAIRS = ({"query", "key"}, {"value", "out"}, {"ssm_b", "ssm_c"})


def best(params: Any, tables: Mapping[str, Sequence[Rule]]) -> str | None:
    """The name of the table whose rules describe most leaves of a tree.

    Attention or state space layers must be among them.

    A leaf counts if its path matches and its rank is that of the layout. Of tables that describe
    equally many the first is chosen.
    """
    leaves = [(path, np.ndim(leaf)) for path, leaf in paths.flatten(params)[0]]
    scores = {name: _described(leaves, rules) for name, rules in tables.items()}
    name = max(scores, key=lambda name: scores[name])
    return name if scores[name] else None


def _described(leaves: Sequence[tuple[str, int]], rules: Sequence[Rule]) -> int:
    """How many leaves the rules describe; 0 without two kernels that are drawn together."""
    roles: set[str] = set()
    count = 0
    for path, rank in leaves:
        rule = next((rule for rule in rules if rule.block(path) is not None), None)
        if rule and rule.rank == rank:
            roles.update(rule.roles)
            count += 1
    return count if any(pair <= roles for pair in _PAIRS) else 0
