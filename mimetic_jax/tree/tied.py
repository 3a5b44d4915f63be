"""Embeddings of tokens that a tied model stores under several names, or under another one."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import names
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
        equal = [
            leaf
            for leaf in _alike(named, tree.rule_of, table)
            if _are_equal(named, table, leaf)
            or (table.rule.untied is False and _is_output(tree, leaf))
        ]
        if not equal:
            continue
        alike = f"{', '.join(leaf.path for leaf in equal)} = {table.path}"
        if table.rule.untied:
            notes[table.index] = f"{alike}: two tensors, by tie_word_embeddings=false"
            continue
        notes[table.index] = f"{alike}: one tensor of a tied model, written alike"
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


def check_told(tree: Tree, written: Collection[str]) -> None:
    """Raise InputError if an embedding or an output layer is written in a program, which hides
    whether they hold the same numbers, and no rule tells it."""
    named = list(zip(tree.paths, tree.leaves, strict=True))
    for block, roles in tree.blocks.items() if _ROLES & {*written} else ():
        table = roles.get("embedding")
        if table is None or not table.fits or table.rule.untied is not None:
            continue
        taken = {leaf.index for leaf in tree.copies.get(table.index, ())}
        for leaf in _alike(named, tree.rule_of, table):
            hidden = any(isinstance(named[x.index][1], jax.core.Tracer) for x in (table, leaf))
            if not hidden or leaf.index in taken:
                continue
            output = "" if _is_output(tree, leaf) else _as_text(leaf, "", "unembedding") + ", "
            tied, untied = (
                f"rules=({_as_text(table, block, 'embedding', apart)}, "
                f"{output}*{tree.name_of_rules})"
                for apart in (False, True)
            )
            raise InputError(
                f"{leaf.path} may be a copy of {table.path}, whose values a program hides: "
                f"pass {tied} if it is; or {untied} if not"
            )


def _as_text(leaf: Leaf, block: str, role: str, untied: bool | None = None) -> str:
    """The rule of a leaf in a block, as an argument."""
    path = leaf.path.removeprefix(block).lstrip("/.").replace(".", "/")
    stated = [f'Rule("{path if block else "^" + path}", "{role}", "{leaf.rule.layout}"']
    stated += [f'within=r"^{names.numbered(block)}$"'] if block else []
    stated += [f"form={leaf.rule.form}"] if leaf.rule.form and role == "embedding" else []
    stated += [] if untied is None else [f"untied={untied}"]
    return f"{', '.join(stated)})"


def _is_output(tree: Tree, leaf: Leaf) -> bool:
    """Whether a rule describes a leaf as an output layer."""
    rule = tree.rule_of.get(leaf.path)
    return rule is not None and "unembedding" in rule.roles


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
