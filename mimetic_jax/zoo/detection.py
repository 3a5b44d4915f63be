"""Which table of rules fits a tree: names decide, shapes only by their number of axes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mimetic_jax import paths
from mimetic_jax.errors import InputError
from mimetic_jax.rules import Rule, describing

_PAIRS = ({"query", "key"}, {"value", "out"}, {"ssm_b", "ssm_c"})
_DRAWN = frozenset().union(*_PAIRS)


def chosen(params: Any, tables: Mapping[str, Sequence[Rule]]) -> str | None:
    """The name of the table whose rules describe most leaves of a tree.

    Attention or state space layers must be among them. A leaf counts if its path matches and its
    rank is that of the layout; leaves of rules without a role count too, as they show whose names
    these are. The first table is preferred to others that describe no more.

    Args:
        params: a parameter tree.
        tables: by name; the first one is that of stock names.

    Raises:
        InputError: if others describe as much as the best, in other ways; or if they describe
            attention that the best doesn't.
    """
    leaves = tuple((path, np.ndim(leaf)) for path, leaf in paths.flatten(params)[0])
    found = {name: _described(leaves, tuple(rules)) for name, rules in tables.items()}
    best = max(found, key=lambda name: len(found[name]))
    if not found[best]:
        return None
    stock = next(iter(tables))
    others = {name: rules for name, rules in found.items() if name not in (stock, best)}
    for name, described in others.items() if best != stock else ():
        beside = [path for path, rule in described.items() if _DRAWN & set(rule.roles)]
        if beside and not found[best].keys() & set(beside):
            raise InputError(
                f"zoo.{best} describes one part of this tree and zoo.{name} another, such as "
                f"{beside[0]}: give rules=(*zoo.{best}, *zoo.{name})"
            )
        for path in described.keys() | found[best].keys():
            alike = _agree(described.get(path), found[best].get(path))
            if len(described) == len(found[best]) and not alike:
                raise InputError(
                    f"zoo.{best} and zoo.{name} fit this tree equally well, but differ in {path}: "
                    f"give rules=zoo.{best} or rules=zoo.{name}"
                )
    return best


def _agree(one: Rule | None, other: Rule | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.role, one.layout, one.undivided) == (other.role, other.layout, other.undivided)


@functools.lru_cache(maxsize=128)  # every scheme of a tuple, plan and check ask for the same tree
def _described(leaves: tuple[tuple[str, int], ...], rules: tuple[Rule, ...]) -> Mapping[str, Rule]:
    """The leaves that the rules describe; none without two kernels that are drawn together."""
    found = {}
    for path, rank in leaves:
        described = describing(path, rules)
        if described and (not described[0].roles or described[0].rank == rank):
            found[path] = described[0]
    roles = {role for rule in found.values() for role in rule.roles}
    return found if any(pair <= roles for pair in _PAIRS) else {}
