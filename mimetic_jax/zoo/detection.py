"""Which table of rules fits a tree: names decide, then the number of axes and the widths."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules.rule import ATTENTION, Rule, find_rule

_PAIRS = ({"query", "key"}, {"value", "out"})

_Shapes = Sequence[tuple[str, tuple[int, ...]]]
_Leaves = tuple[tuple[str, tuple[int, ...]], ...]


def best_table(shapes: _Shapes, tables: Mapping[str, Sequence[Rule]]) -> str | None:
    """The name of the table whose rules describe most leaves of a tree, by their paths and shapes.

    Attention must be among them. A leaf counts if its path matches and its
    rank is that of the layout; leaves of rules without a role count too, as they show whose names
    these are; norms, embeddings of tokens and what no scheme writes don't. Of tables that describe
    as much, those are left out by which an attention layer would have several widths; the first one
    of the rest is preferred. The first of all tables is that of stock names. Others that describe
    as much in other ways, or attention that the best doesn't, are an error.
    """
    leaves = tuple(shapes)
    described_by = {name: _described(leaves, tuple(rules)) for name, rules in tables.items()}
    most = max(map(len, described_by.values()))
    if not most:
        return None
    fits = {name: _one_width(leaves, of) for name, of in described_by.items() if len(of) == most}
    best = max(fits, key=lambda name: fits[name])
    stock = next(iter(tables))
    others = {name: rules for name, rules in described_by.items() if name not in (stock, best)}
    for name, described in others.items() if best != stock else ():
        beside = _whole_layers(described)
        if beside and not described_by[best].keys() & set(beside):
            raise InputError(
                f"zoo.{best} describes one part of this tree and zoo.{name} another, such as "
                f"{beside[0]}: give rules=(*zoo.{best}, *zoo.{name})"
            )
        for path in described.keys() | described_by[best].keys():
            alike = _agree(described.get(path), described_by[best].get(path))
            if fits.get(name) == fits[best] and not alike:
                raise InputError(
                    f"zoo.{best} and zoo.{name} fit this tree equally well, but differ in {path}: "
                    f"give rules=zoo.{best} or rules=zoo.{name}"
                )
    return best


def _whole_layers(described: Mapping[str, Rule]) -> list[str]:
    """The leaves to draw in layers of which all are described."""
    layers: dict[str | None, dict[str, frozenset[str]]] = defaultdict(dict)
    for path, rule in described.items():
        layers[rule.block(path)][path] = frozenset(ATTENTION).intersection(rule.roles)
    return [
        path
        for leaves in layers.values()
        if frozenset().union(*leaves.values()) == set(ATTENTION)
        for path, roles in leaves.items()
        if roles
    ]


def _agree(rule: Rule | None, other: Rule | None) -> bool:
    if rule is None or other is None:
        return rule is other
    return (rule.role, rule.layout, rule.undivided) == (other.role, other.layout, other.undivided)


@functools.lru_cache(maxsize=256)  # of some trees: plan, rewrite and check ask for the same one
def _described(leaves: _Leaves, rules: tuple[Rule, ...]) -> Mapping[str, Rule]:
    """The leaves that the rules describe, but for norms, embeddings and what no scheme writes; none
    without two kernels that are drawn together."""
    rules = tuple(x for x in rules if not (x.of_norm or x.of_first_layer or x.read_only))
    rule_of = {}
    beside = frozenset(path for path, _ in leaves)
    for path, shape in leaves:
        described = find_rule(path, rules, beside)
        if described and (not described[0].roles or len(described[0].stored.axes) == len(shape)):
            rule_of[path] = described[0]
    roles = {role for rule in rule_of.values() for role in rule.roles}
    return rule_of if any(pair <= roles for pair in _PAIRS) else {}


def _one_width(leaves: _Leaves, described: Mapping[str, Rule]) -> bool:
    """Whether the kernels of each attention layer, read by their rules, have the same width."""
    widths = defaultdict(set)
    for path, shape in leaves:
        if path in described and set(ATTENTION) & set((rule := described[path]).roles):
            inputs, outputs = rule.matrix
            axes = outputs if rule.role == "out" else inputs
            widths[rule.block(path)].add(math.prod(shape[axis] for axis in axes))
    return all(len(sizes) == 1 for sizes in widths.values())
