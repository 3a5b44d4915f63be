"""The draws of schemes put in place of a tree's leaves, or into them."""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.host.cores import on_cores
from mimetic_jax.rules import paths
from mimetic_jax.schemes import Context, Scheme
from mimetic_jax.schemes.base import depth_dependence, field_values
from mimetic_jax.tree import draw, placement
from mimetic_jax.tree.around import surroundings
from mimetic_jax.tree.layers import network
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.match import Match
from mimetic_jax.tree.tree import Tree, has_values

_SAMPLED = 1024
"""Numbers by which a copy is told."""


def write(
    tree: Tree,
    key: jax.Array,
    schemes: Sequence[Scheme],
    given: Context,
    *,
    in_place: bool = False,
) -> None:
    """Put the draws of schemes in place of a tree's leaves, or into them."""
    with placement.without_mesh():
        key = placement.local_key(key)
        matches = draw.in_order(tree, schemes)
        for match in matches:  # before the first draw, which may make layers equal
            _check_no_replicas(match)
        for match in matches:
            # No other block reads these leaves, and positions are read before the first draw.
            for index, leaf in _written(match, key, given):
                if in_place:
                    tree.leaves[index][...] = leaf
                else:
                    tree.leaves[index] = leaf


def _written(match: Match[Scheme], key: jax.Array, given: Context) -> Iterator[tuple[int, Any]]:
    """Each leaf that the scheme writes, by its index, when its block is drawn."""
    tree, scheme = match.tree, match.scheme
    for leaf in (leaf for _, leaves in match.blocks for leaf in leaves):
        placement.check_whole(tree.stored(leaf), key, leaf.path)
    surveyed = scheme.survey(lambda: network(tree), match.roles)
    around = dataclasses.replace(surroundings(tree, given), surveyed=surveyed)

    inputs = (key, *tree.leaves, *field_values(scheme))
    concrete = not any(isinstance(x, jax.core.Tracer) for x in inputs)
    in_loop = not concrete and not depth_dependence(scheme)

    def drawn(block: str) -> draw.Drawn:
        layers = tree.layers(block)
        form = draw.in_loop if in_loop and layers != [None] else draw.in_layers
        return form(tree, key, scheme, around, block, layers)

    if concrete:
        _check_no_copies(match)
    shared = concrete and any(map(placement.is_shared, tree.leaves))
    checksum = 0
    blocks = [block for block, _ in match.blocks]
    # Tracers must stay in the thread of their trace.
    draws = (on_cores if concrete else map)(drawn, blocks)
    for block, arrays in zip(blocks, draws, strict=True):
        for array in arrays.values() if shared else ():
            checksum = zlib.crc32(np.asarray(array).tobytes(), checksum)
        yield from _placed(tree, block, arrays).items()
    if shared:
        placement.check_agreement(checksum)


def _placed(tree: Tree, block: str, arrays: Mapping[str, Any]) -> dict[int, Any]:
    """The leaves of a block by index, with its draw put in."""
    new: dict[int, Any] = {}
    for role, array in arrays.items():
        for leaf in tree.stored_in(block, role):
            # Several roles may share a leaf: each is put into the result of the one before.
            stored = new.get(leaf.index, tree.leaves[leaf.index])
            new[leaf.index] = placement.placed_like(leaf.pack(array, stored), stored)
    return new


def _check_no_copies(match: Match[Scheme]) -> None:
    """Raise InputError if one part of the tree holds a copy of another: the draws would differ.

    A teacher starts as a copy of its student. Layers of one part may be equal to each other, and
    tables of positions in all.
    """
    seen: dict[tuple[Any, ...], str] = {}
    for block, leaves in match.blocks:
        leaf = max(leaves, key=lambda leaf: np.prod(leaf.shape))
        sample = _sample(match.tree.leaves[leaf.index])
        if leaf.role == "position" or sample is None or (sample == sample[0]).all():
            continue
        name = re.split("[/.]", block)[-1]
        other = seen.setdefault((name, leaf.role, leaf.shape, sample.tobytes()), block)
        if paths.family(other) != paths.family(block):
            raise InputError(
                f"{block} is a copy of {other}, and their draws would differ: rewrite one of the "
                "two, and copy it again; if they are equal by chance, rewrite both one by one"
            )


def _check_no_replicas(match: Match[Scheme]) -> None:
    """Raise InputError for layers that are all equal, as `pmap` has a copy of a leaf per device:
    the draws would differ. Whoever gave the rules has decided."""
    tree = match.tree
    for _, leaves in match.blocks if tree.family else ():
        if not all(_repeats(leaf, tree.leaves[leaf.index]) for leaf in leaves):
            continue
        leaf = max(leaves, key=lambda leaf: np.prod(leaf.shape))
        values = np.asarray(tree.leaves[leaf.index])
        if (values != values.flat[0]).any():  # else the tree is blank
            raise InputError(
                f"{leaf.path} of shape {leaf.shape} holds {leaf.layers} equal slices, as of "
                "parameters that are replicated for pmap: pass flax.jax_utils.unreplicate(params). "
                f"If they are layers of equal values, pass rules={tree.name_of_rules}"
            )


def _repeats(leaf: Leaf, stored: Any) -> bool:
    """Whether a leaf stacks layers that are equal."""
    if (leaf.layers or 0) < 2 or not has_values(stored):
        return False
    first, *others = np.moveaxis(np.asarray(stored), leaf.rule.stored.axes.index(("l",)), 0)
    return all(np.array_equal(first, other) for other in others)


def _sample(stored: Any) -> np.ndarray | None:
    """The first numbers of an array here; None if it isn't all here."""
    if isinstance(stored, jax.Array):
        if not stored.is_fully_addressable:
            return None
        stored = stored.addressable_shards[0].data
    return np.asarray(stored).reshape(-1)[:_SAMPLED]
