"""Which table of rules fits a tree: names decide, then the number of axes and the widths."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import Rule, find_rule

_PAIRS = ({"query", "key"}, {"value", "out"})
_DRAWN = frozenset().union(*_PAIRS)
_ATTENTION = _PAIRS[0] | _PAIRS[1]

_Leaves = tuple[tuple[str, tuple[int, ...]], ...]


def best_table(params: Any, tables: Mapping[str, Sequence[Rule]]) -> str | None:
    """The name of the table whose rules describe most leaves of a tree.

    Attention must be among them. A leaf counts if its path matches and its
    rank is that of the layout; leaves of rules without a role count too, as they show whose names
    these are; norms, embeddings of tokens and what no scheme writes don't. Of tables that describe
    as much, those are left out by which an attention layer would have several widths; the first one
    of the rest is preferred. The first of all tables is that of stock names. Others that describe
    as much in other ways, or attention that the best doesn't, are an error.
    """
    leaves = tuple((path, np.shape(leaf)) for path, leaf in paths.flatten(params)[0])
    found = _found(leaves, tuple((name, tuple(rules)) for name, rules in tables.items()))
    most = max(map(len, found.values()))
    if not most:
        return None
    fits = {name: _one_width(leaves, of) for name, of in found.items() if len(of) == most}
    best = max(fits, key=lambda name: fits[name])
    stock = next(iter(tables))
    others = {name: rules for name, rules in found.items() if name not in (stock, best)}
    for name, described in others.items() if best != stock else ():
        beside = _whole_layers(described)
        if beside and not found[best].keys() & set(beside):
            raise InputError(
                f"zoo.{best} describes one part of this tree and zoo.{name} another, such as "
                f"{beside[0]}: give rules=(*zoo.{best}, *zoo.{name})"
            )
        for path in described.keys() | found[best].keys():
            alike = _agree(described.get(path), found[best].get(path))
            if fits.get(name) == fits[best] and not alike:
                raise InputError(
                    f"zoo.{best} and zoo.{name} fit this tree equally well, but differ in {path}: "
                    f"give rules=zoo.{best} or rules=zoo.{name}"
                )
    return best


def _whole_layers(found: Mapping[str, Rule]) -> list[str]:
    """The leaves to draw in layers of which all are described."""
    layers: dict[str | None, dict[str, frozenset[str]]] = defaultdict(dict)
    for path, rule in found.items():
        layers[rule.block(path)][path] = _DRAWN & set(rule.roles)
    return [
        path
        for leaves in layers.values()
        if frozenset().union(*leaves.values()) == _ATTENTION
        for path, roles in leaves.items()
        if roles
    ]


def _agree(one: Rule | None, other: Rule | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.role, one.layout, one.undivided) == (other.role, other.layout, other.undivided)


@functools.lru_cache(maxsize=8)  # trees: plan, rewrite and check ask for the same one
def _found(
    leaves: _Leaves, tables: tuple[tuple[str, tuple[Rule, ...]], ...]
) -> Mapping[str, Mapping[str, Rule]]:
    """What each table describes, but for norms, embeddings and what no scheme writes."""
    return {
        name: _described(
            leaves, [x for x in rules if not (x.of_norm or x.of_first_layer or x.read_only)]
        )
        for name, rules in tables
    }


def _described(leaves: _Leaves, rules: Sequence[Rule]) -> Mapping[str, Rule]:
    """The leaves that the rules describe; none without two kernels that are drawn together."""
    found = {}
    beside = frozenset(path for path, _ in leaves)
    for path, shape in leaves:
        described = find_rule(path, rules, beside)
        if described and (not described[0].roles or len(described[0].stored.axes) == len(shape)):
            found[path] = described[0]
    roles = {role for rule in found.values() for role in rule.roles}
    return found if any(pair <= roles for pair in _PAIRS) else {}


def _one_width(leaves: _Leaves, found: Mapping[str, Rule]) -> bool:
    """Whether the kernels of each attention layer, read by their rules, have the same width."""
    widths = defaultdict(set)
    for path, shape in leaves:
        if path in found and _ATTENTION & set((rule := found[path]).roles):
            inputs, outputs = rule.matrix
            axes = outputs if rule.role == "out" else inputs
            widths[rule.block(path)].add(math.prod(shape[axis] for axis in axes))
    return all(len(sizes) == 1 for sizes in widths.values())
