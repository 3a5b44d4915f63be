"""A parameter tree as data: its leaves by role, read in canonical form."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import Rule
from mimetic_jax.schemes import Block
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.scales import check_unscaled, named_scales
from mimetic_jax.weights.checks import check_dtype, is_here
from mimetic_jax.zoo.family import Family

Blocks: TypeAlias = Mapping[str, Mapping[str, Leaf]]
"""Leaves by the path of what they are in, and by role."""


@dataclasses.dataclass(frozen=True)
class Tree:
    """A parameter tree and, by rules, its blocks: what `tree.label.label` makes of it.

    Attributes:
        treedef, paths, leaves: its structure, and the paths of its arrays or shapes in its order.
        rules: those that describe leaves.
        family: what knows all leaves of a layer; None if the rules were given by hand.
        heads: the numbers of heads, "h" and "g"; `grouped`, if that of key and value was given.
        rule_of: the rule that describes a leaf, by path.
        blocks: the described leaves that schemes may write, by the path of their block.
        read_only: those that only `check` reads, likewise.
        norms: gains and scales, by the place of their norm with "/" between names.
        tied: whether copies were looked for.
        copies: those of an embedding of tokens, which are written as it is, by its index.
        notes: what a plan says of them.
    """

    treedef: Any
    paths: Sequence[str]
    leaves: list[Any]
    rules: Sequence[Rule]
    family: Family | None
    heads: Mapping[str, int | None]
    grouped: bool
    rule_of: Mapping[str, Rule]
    blocks: Blocks
    read_only: Blocks
    norms: Blocks
    tied: bool = False
    copies: Mapping[int, Sequence[Leaf]] = dataclasses.field(default_factory=dict)
    notes: Mapping[int, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def indices(self) -> dict[str, int]:
        """The place of each path."""
        return {path: index for index, path in enumerate(self.paths)}

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every leaf by path, in the order of the tree."""
        return {path: np.shape(leaf) for path, leaf in zip(self.paths, self.leaves, strict=True)}

    @functools.cached_property
    def scales(self) -> list[str]:
        """The paths without a rule that may be those of a kernel's scale."""
        return named_scales(path for path in self.paths if path not in self.rule_of)

    @functools.cached_property
    def inside(self) -> Mapping[str, Sequence[str]]:
        """The paths of all leaves by what they are in."""
        found = defaultdict(list)
        for path in self.paths:
            found[paths.parent(path)].append(path)
        return found

    def knows(self, path: str) -> bool:
        """Whether a rule describes a leaf, or the tree's family knows it as harmless."""
        return path in self.rule_of or self.family is None or self.family.knows(path)

    def with_leaves(self, leaves: list[Any]) -> Self:
        """The tree with other values of its leaves."""
        return dataclasses.replace(self, leaves=leaves)

    def with_read_only(self) -> Self:
        """The tree with the leaves that only `check` reads among its blocks."""
        blocks: dict[str, dict[str, Leaf]] = defaultdict(dict)
        for block, leaves in (*self.read_only.items(), *self.blocks.items()):
            blocks[block] |= leaves
        return dataclasses.replace(self, blocks=blocks)

    @property
    def params(self) -> Any:
        """The parameter tree of the leaves."""
        return jax.tree.unflatten(self.treedef, self.leaves)

    def stored(self, leaf: Leaf) -> Any:
        """The stored array of a leaf; an error if it has no values."""
        value = self.leaves[leaf.index]
        if isinstance(value, jax.ShapeDtypeStruct):
            raise InputError(f"{leaf.path} is a shape without values: pass what model.init returns")
        concrete = isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
        if concrete and value.is_deleted():
            raise InputError(f"{leaf.path} is a deleted array, as donation leaves it")
        return value

    def dtype(self, leaf: Leaf) -> Any:
        return dtype_of(self.leaves[leaf.index])

    def view(
        self,
        block: str,
        layer: int | jax.Array | None,
        beside: Mapping[str, Leaf] | None = None,
        on_read: Callable[[str], object] = lambda role: None,
    ) -> Block:
        """A block as schemes see it, with leaves beside it: one layer, if layers are stacked.

        `on_read` is called with each role whose array is read.
        """
        every = {**self.blocks[block], **(beside or {})}
        leaves = {role: leaf for role, leaf in every.items() if leaf.fits}
        shapes = {role: leaf.canonical_shape for role, leaf in leaves.items()}

        def read(role: str) -> jax.Array:
            on_read(role)
            self.check_writable(block, leaves[role])
            return self.canonical(leaves[role], layer)

        multipliers = {role: float(leaf.multiplier) for role, leaf in leaves.items()}
        return Block(shapes, read, multipliers)

    def check_writable(self, block: str, leaf: Leaf) -> None:
        """Raise InputError for a leaf of a dtype that holds no weights, or one with a scale."""
        check_dtype(self.dtype(leaf), f"{leaf.path}: dtype")
        check_unscaled(leaf, block, self.scales)

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
        return [leaf, *self.copies.get(leaf.index, ())]

    def layers(self, block: str) -> list[int | None]:
        """The layers that a block stacks; [None] if it doesn't stack layers."""
        stacks = {leaf.layers for leaf in self.blocks[block].values() if leaf.fits}
        stack = next(iter(stacks), None)  # all are equal: see `shapes.check_shapes`
        return [None] if stack is None else list(range(stack))

    @property
    def name_of_rules(self) -> str:
        """What `rules` are called in an argument."""
        name = zoo.name_of(self.rules)
        return f"zoo.{name}" if name else "rules"


def dtype_of(value: Any) -> Any:
    """The dtype of an array, a shape or a number."""
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype


def has_values(stored: Any) -> bool:
    """Whether the values of an array can be read here."""
    if isinstance(stored, jax.ShapeDtypeStruct | jax.core.Tracer) or not is_here(stored):
        return False
    return not (isinstance(stored, jax.Array) and stored.is_deleted())
