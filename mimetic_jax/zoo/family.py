"""A family of models: a row that knows every leaf of its layers, and whether it fits a tree."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import ATTENTION, Rule, find_rule, search

Shapes: TypeAlias = Sequence[tuple[str, tuple[int, ...]]]
"""The leaves of a tree in their order: path and shape."""

_PAIRS = ({"query", "key"}, {"value", "out"})

ADAPTERS = r"(?i)(?:^|[/._])lora_?[ab](?:[/._]|$)|(?:^|[/.])lora/[ab](?:/|$)"
"""Low-rank products beside a kernel, which add to it and start at zero."""


@dataclasses.dataclass(frozen=True)
class Family:
    """All leaves of one kind of model.

    Attributes:
        rules: those of the leaves that have a role, or that stay although others have their names.
        harmless: regular expression of the other leaves of a layer, which change neither the order
            of heads nor the scale of logits: norms, positions, experts, cross-attention.
        needs: regular expression of a leaf without which the names may be another family's.
        absent: regular expression of leaves of other families, anywhere in the tree.
        by_layer: whether it knows whole layers, or the modules of attention and MLP alone, as of a
            library of layers.
        by_config: whether nothing but a configuration tells it from another family.
        note: what to know before it is used; `plan` prints it.
    """

    rules: tuple[Rule, ...]
    harmless: str = ""
    needs: str = ""
    absent: str = ""
    by_layer: bool = True
    by_config: bool = False
    note: str = ""

    def __iter__(self) -> Iterator[Rule]:
        """Its rules, so that others may stand in front: (Rule(…), *family)."""
        return iter(self.rules)

    def knows(self, path: str) -> bool:
        """Whether a leaf without a rule is known as harmless."""
        return bool(search(ADAPTERS, path) or (self.harmless and search(self.harmless, path)))


class Fit(NamedTuple):
    """How a family describes a tree.

    Attributes:
        kernels: the rule of each kernel of attention that fits, by path.
        unknown: leaves that it doesn't know, in layers with attention and in those of their name.
        disagree: the kernels of attention layers that have several widths by it.
    """

    kernels: Mapping[str, Rule]
    unknown: tuple[str, ...]
    disagree: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return bool(self.kernels) and not self.unknown and not self.disagree


@functools.lru_cache(maxsize=256)  # of some trees: plan, rewrite and check ask for the same one
def fitted(family: Family, shapes: Shapes) -> Fit:
    """How a family describes a tree of these shapes."""
    ranks = {path: len(shape) for path, shape in shapes}
    if family.absent and any(search(family.absent, path) for path in ranks):
        return Fit({}, (), ())
    if family.needs and not any(search(family.needs, path) for path in ranks):
        return Fit({}, (), ())
    described = {
        path: match
        for path, rank in ranks.items()
        if (match := find_rule(path, family.rules, ranks, rank))
    }
    kernels, widths = {}, defaultdict(set)
    for path, shape in shapes:
        rule, block = described.get(path, (None, ""))
        if rule and not {*ATTENTION}.isdisjoint(rule.roles) and len(rule.stored.axes) == len(shape):
            kernels[path] = rule
            widths[block].add(rule.width(shape))
    roles = {role for rule in kernels.values() for role in rule.roles}
    if not any(pair <= roles for pair in _PAIRS):
        return Fit({}, (), ())
    layers = {
        re.sub(r"\d+", "#", layer)
        for path, rule in kernels.items()
        if (layer := paths.layer(described[path][1], stacked=rule.stored.stacked))
    }
    unknown = [
        path
        for path in (ranks if family.by_layer else ())
        if path not in described
        and not layers.isdisjoint(paths.above(re.sub(r"\d+", "#", path)))
        and not family.knows(path)
    ]
    disagree = tuple(path for path in kernels if len(widths[described[path][1]]) > 1)
    return Fit(kernels, tuple(unknown), disagree)
