"""Embeddings of tokens that a tied model stores under several names, or under another one."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from mimetic_jax import zoo
from mimetic_jax.rules.rule import Rule
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.tree import Blocks, Tree, has_values

Named: TypeAlias = Sequence[tuple[str, Any]]
"""Leaves with their paths."""
_ROLES = {"embedding", "unembedding"}
_ROWS = 64
"""Tokens that are compared at once: the first ones tell nearly all tensors apart."""


def tie(tree: Tree) -> Tree:
    """Take the copies of embeddings of tokens out of a tree's blocks.

    Copies hold the same numbers, as the output layer of a tied model does in files that store both.
    If an output layer is left, the `tied_gain` of the norm before it is only read.
    A file that stores one may do so under the name of the output layer, which then gets the role of
    the embedding, if a family of models has it: its embedding has no other name.

    Returns:
        The tree with `copies` of each tied embedding, by its index, and `notes` that say so.
    """
    if tree.tied:  # large tables aren't compared again
        return tree
    blocks = {block: dict(roles) for block, roles in tree.blocks.items()}
    named = list(zip(tree.paths, tree.leaves, strict=True))
    copies: dict[int, list[Leaf]] = {}
    notes: dict[int, str] = {}
    rules = [rule for rule in tree.rules if rule.role == "embedding"]
    if (lone := _lone_output(blocks, named)) and not any(rule.untied for rule in rules):
        block, output = lone
        del blocks[block][output.role]
        leaf = _stored_as(output, rules[0] if rules else output.rule)
        blocks[block][leaf.role] = leaf
        copies[leaf.index] = []
        notes[leaf.index] = f"{leaf.path} is the embedding of a tied model: no other is of its size"
    for block in list(blocks):
        table = blocks[block].get("embedding")
        if table is None or not table.fits or len(table.shape) != 2:
            continue
        alike = _alike(named, tree.rule_of, table)
        equal = [leaf for leaf in alike if _are_equal(named, table, leaf)]
        if not equal:
            continue
        names = f"{', '.join(leaf.path for leaf in equal)} = {table.path}"
        if table.rule.untied:
            notes[table.index] = f"{names}: two tensors, by tie_word_embeddings=false"
            continue
        notes[table.index] = f"{names}: one tensor of a tied model, written alike"
        copies[table.index] = equal
        taken = {leaf.index for leaf in equal}
        for roles in blocks.values():
            for role in [role for role, leaf in roles.items() if leaf.index in taken]:
                del roles[role]
    tables = [roles["embedding"] for roles in blocks.values() if "embedding" in roles]
    untied = any("unembedding" in roles for roles in blocks.values())
    read_only = defaultdict[str, Mapping[str, Leaf]](dict, tree.read_only)
    if untied or any(table.rule.untied for table in tables):
        for block, roles in blocks.items():
            if gain := roles.pop("tied_gain", None):
                read_only[block] = {**read_only[block], "tied_gain": gain}
    return dataclasses.replace(
        tree, blocks=blocks, read_only=read_only, tied=True, copies=copies, notes=notes
    )


def _lone_output(blocks: Blocks, named: Named) -> tuple[str, Leaf] | None:
    """The block and the leaf of a family's output layer, if no other leaf could embed its
    tokens."""
    embedding = [
        (block, leaf)
        for block, roles in blocks.items()
        for role, leaf in roles.items()
        if role in _ROLES
    ]
    if len(embedding) != 1 or embedding[0][1].role == "embedding" or not embedding[0][1].fits:
        return None
    if not any(embedding[0][1].rule in family.rules for family in zoo.FAMILIES.values()):
        return None
    size = sorted(embedding[0][1].shape)
    same_size = [path for path, leaf in named if sorted(np.shape(leaf)) == size]
    return embedding[0] if len(same_size) == 1 else None


def _alike(named: Named, rule_of: Mapping[str, Rule], table: Leaf) -> Iterator[Leaf]:
    """Leaves that may be copies of an embedding by their shapes and by what rules say of them."""
    axes = table.rule.layout.split()
    for index, (path, leaf) in enumerate(named):
        rule, shape = rule_of.get(path, table.rule), np.shape(leaf)
        if index == table.index or not _ROLES.issuperset(rule.roles):
            continue
        for order in (axes, axes[::-1]):
            if shape == tuple(table.sizes[axis] for axis in order):
                rule = dataclasses.replace(table.rule, layout=" ".join(order))
                yield dataclasses.replace(table, index=index, path=path, rule=rule, shape=shape)
                break


def _are_equal(named: Named, table: Leaf, other: Leaf) -> bool:
    """Whether two leaves hold the same numbers, which aren't all one number, as in a blank tree."""
    stored = [named[leaf.index][1] for leaf in (table, other)]
    if stored[0] is stored[1] and not isinstance(stored[0], jax.ShapeDtypeStruct):
        return True
    if not all(map(has_values, stored)):
        return False
    first, second = (
        leaf.whole(np.asarray(array)) for leaf, array in zip((table, other), stored, strict=True)
    )
    parts = [slice(start, start + _ROWS) for start in range(0, len(first), _ROWS)]
    same = all(np.array_equal(first[part], second[part]) for part in parts)
    return same and first.min() < first.max()


def _stored_as(leaf: Leaf, rule: Rule) -> Leaf:
    """An output layer as the embedding by the table's rule of one, in the order of its own axes."""
    rule = dataclasses.replace(rule, role="embedding", layout=leaf.rule.layout)
    return dataclasses.replace(leaf, role="embedding", rule=rule)
