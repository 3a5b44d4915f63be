"""A parameter tree as data: its leaves by role, read in canonical form."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import shown
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import ROLES, Rule, search
from mimetic_jax.schemes import Block
from mimetic_jax.tree.label import check_unscaled, label, of_optimizer, scaled_elsewhere
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.tied import tie
from mimetic_jax.weights.checks import check_dtype, counts

Matches: TypeAlias = list[tuple[str, list[Leaf]]]
"""Blocks by their paths, with the leaves that a scheme writes there."""


class Tree:
    """A parameter tree and, by rules, its blocks.

    Attributes:
        leaves, paths: arrays or shapes, and their paths, in the order of the tree; `indices` has
            the place of each path.
        rules: the rules that describe leaves; `found_rules`, if they weren't given.
        heads: the numbers of heads, "h" and "g"; `grouped`, if that of key and value was given.
        blocks: the described leaves by the path of their block and by role; of `read_only` and
            `norms` see `Labels`.
        held: the paths of all leaves by what they are in.
        rule_of: the rule that describes a leaf, by path.
        undescribed: leaves that seem to be of attention which no rule describes or leaves out.
        asked: the roles that schemes write if they are there; `read` are those that they read.
        tied: the copies of an embedding of tokens, which are written as it is, by its index;
            `notes` are what a plan says of them.
    """

    asked: frozenset[str] = frozenset()

    def __init__(
        self,
        params: Any,
        rules: Sequence[Rule] | None = None,
        num_heads: int | None = None,
        num_kv_heads: int | None = None,
    ) -> None:
        named, self._treedef = paths.flatten(params)
        self.paths, self.leaves = [path for path, _ in named], [leaf for _, leaf in named]
        if not all(self.paths):
            raise InputError(
                f"{shown(params)} is not a tree of parameters: give a dictionary of arrays or "
                "another pytree, such as model.init(key, x)['params']"
            )
        self.found_rules = rules is None
        self.rules: Sequence[Rule] = zoo.rules_of(params, self.shapes) if rules is None else rules
        if not isinstance(self.rules, Sequence) or not all(
            isinstance(rule, Rule) for rule in self.rules
        ):
            raise InputError(f"rules {shown(rules)} are not a sequence of Rule")
        given = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
        counts(**{name: count for name, count in given.items() if count is not None})
        self.heads = {"h": num_heads, "g": num_kv_heads or num_heads}
        self.grouped = num_kv_heads is not None
        self.indices = {path: index for index, path in enumerate(self.paths)}
        self.held: dict[str, list[str]] = defaultdict(list)
        for path in self.paths:
            self.held[paths.parent(path)].append(path)
        self._scaled = scaled_elsewhere(self.indices)
        self.rule_of, self.blocks, self.read_only, self.norms, undescribed = label(
            self.shapes, self.rules, self.heads, of_optimizer(params, self.paths)
        )
        self.undescribed = [path for path in undescribed if not self.leaves_out(path)]
        self.read = set[str]()
        self.tied, self.notes = tie(self.blocks, named, self.rules, self.rule_of)

    @functools.cached_property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """The path and the shape of every leaf."""
        return [(path, np.shape(leaf)) for path, leaf in zip(self.paths, self.leaves, strict=True)]

    def leaves_out(self, path: str, roles: Collection[str] = ROLES) -> bool:
        """Whether a rule leaves a leaf out on purpose, where it would have one of these roles.

        The `within` of a table tells whose names these are, and leaves nothing out.
        """
        excluded = {rule.exclude for rule in self.rules} - {""}
        return any(search(expression, path) for expression in excluded) or any(
            rule.leaves_out(path)
            for rule in self.rules
            if not (self.found_rules or zoo.has_rule(rule)) and not {*rule.roles}.isdisjoint(roles)
        )

    def with_leaves(self, leaves: list[Any]) -> Self:
        """The tree with other values of its leaves."""
        other = copy.copy(self)
        other.leaves = leaves
        return other

    def with_read_only(self) -> Self:
        """The tree with the leaves that only `check` reads among its blocks."""
        other, both = copy.copy(self), (self.read_only, self.blocks)
        other.blocks = defaultdict(dict)
        for block, leaves in (item for blocks in both for item in blocks.items()):
            other.blocks[block] = other.blocks[block] | leaves
        return other

    @property
    def params(self) -> Any:
        """The parameter tree of the leaves."""
        return jax.tree.unflatten(self._treedef, self.leaves)

    def stored(self, leaf: Leaf) -> Any:
        """The stored array of a leaf; an error if it has no values."""
        value = self.leaves[leaf.index]
        if self.is_shape(leaf):
            raise InputError(f"{leaf.path} is a shape without values: give what model.init returns")
        concrete = isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
        if concrete and value.is_deleted():
            raise InputError(f"{leaf.path} is a deleted array, as donation leaves it")
        return value

    def is_shape(self, leaf: Leaf) -> bool:
        return isinstance(self.leaves[leaf.index], jax.ShapeDtypeStruct)

    def dtype(self, leaf: Leaf) -> Any:
        return dtype_of(self.leaves[leaf.index])

    def view(
        self, block: str, layer: int | jax.Array | None, beside: Mapping[str, Leaf] | None = None
    ) -> Block:
        """A block as schemes see it, with leaves beside it: one layer, if layers are stacked."""
        every = {**self.blocks[block], **(beside or {})}
        leaves = {role: leaf for role, leaf in every.items() if leaf.fits}
        shapes = {role: leaf.canonical_shape for role, leaf in leaves.items()}

        def read(role: str) -> jax.Array:
            self.read.add(role)
            self.check_writable(block, leaves[role])
            return self.canonical(leaves[role], layer)

        multipliers = {role: float(leaf.multiplier) for role, leaf in leaves.items()}
        return Block(shapes, read, multipliers)

    def check_writable(self, block: str, leaf: Leaf) -> None:
        """Raise InputError for a leaf of a dtype that holds no weights, or one with a scale."""
        check_dtype(self.dtype(leaf), f"{leaf.path}: dtype")
        check_unscaled(leaf, block, self._scaled, self.held)

    def canonical(self, leaf: Leaf, layer: int | jax.Array | None) -> jax.Array:
        """The canonical array of a leaf in one layer."""
        array = leaf.unpack(self.stored(leaf))
        if layer is not None and leaf.layers is not None:
            traced = isinstance(layer, jax.core.Tracer)
            array = (jnp.asarray(array) if traced else array)[layer]
        # JAX would share the memory of NumPy's aligned arrays, which `rewrite_in_place` overwrites
        # while other blocks read the position table.
        return jnp.array(array, jnp.float32, copy=isinstance(array, np.ndarray))

    def stored_in(self, block: str, role: str) -> list[Leaf]:
        """The leaf that holds a role of a block, and its copies."""
        leaf = self.blocks[block][role]
        return [leaf, *self.tied.get(leaf.index, ())]

    def layers(self, block: str) -> list[int | None]:
        """The layers that a block stacks; [None] if it doesn't stack layers."""
        stacks = {leaf.layers for leaf in self.blocks[block].values() if leaf.fits}
        stack = next(iter(stacks), None)  # all are equal: see `checks.check_stacked`
        return [None] if stack is None else list(range(stack))

    def untied_rules(self) -> Sequence[Rule] | None:
        """The rules for a model that isn't tied, whatever its output layer holds; None if the given
        or known ones do."""
        if not self.tied:
            return None
        return tuple(
            dataclasses.replace(rule, untied=True) if "embedding" in rule.roles else rule
            for rule in self.rules
        )

    @property
    def name_of_rules(self) -> str:
        """What `rules` are called in an argument."""
        if self.rules is zoo.FLAX:
            return "zoo.FLAX"
        name = zoo.table_name(self.rules)
        return f"zoo.{name}" if name else "rules"


def dtype_of(value: Any) -> Any:
    """The dtype of an array, a shape or a number."""
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
