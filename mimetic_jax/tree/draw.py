"""The draws of schemes for the blocks of a tree, and the layers in which they draw."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.rules import paths
from mimetic_jax.schemes import Context, Scheme
from mimetic_jax.schemes.base import depth_dependence, name_of
from mimetic_jax.tree.around import depth, surroundings
from mimetic_jax.tree.layers import network
from mimetic_jax.tree.match import checked_match
from mimetic_jax.tree.tree import Matches, Tree, dtype_of
from mimetic_jax.weights.checks import check_key, in_dtype

Applied: TypeAlias = tuple[Scheme, Tree, Matches]
"""A scheme, the tree as it sees it, and the leaves that it writes there."""
Layers: TypeAlias = list[int | None]
Drawn: TypeAlias = tuple[Layers, dict[str, Any]]
"""Those of a block's layers that a scheme writes, and their new canonical arrays by role: [...], or
[L, ...] if layers are stacked."""


def block_key(key: jax.Array, path: str, layer: int | jax.Array | None = None) -> jax.Array:
    """The key of one block: it depends on the block's path, not on the rest of the tree.

    Args:
        key: the key given to `rewrite`.
        path: the block's path, such as "block_3/attention"; "" for the root.
        layer: index of the layer in a block that stacks its layers, else None.

    Example:
        >>> same = block_key(jax.random.key(0), "block_0/attention")
        >>> bool((same == block_key(jax.random.key(0), "block_0/attention")).all())
        True
    """
    check_key(key)
    key = jax.random.fold_in(key, zlib.crc32(path.encode()))
    return key if layer is None else jax.random.fold_in(key, layer)


def in_order(tree: Tree, schemes: Iterable[Scheme], given: Context) -> list[Applied]:
    """Each scheme with what it writes.

    Raises:
        InputError: if a scheme undoes what one before it has drawn.
    """
    applied = []
    for scheme in schemes:
        seen = tree.with_read_only() if scheme.gated else tree
        applied.append((scheme, seen, checked_match(seen, scheme)))
    for earlier, later in itertools.combinations(applied, 2):
        _check_not_undone(earlier, later, given, [name_of(scheme) for scheme, *_ in applied])
    return applied


def _check_not_undone(earlier: Applied, later: Applied, given: Context, names: list[str]) -> None:
    """Raise InputError if the later scheme undoes the earlier one in a layer."""
    both = earlier, later
    written = [{block: {x.role: x.path for x in leaves} for block, leaves in of} for *_, of in both]
    for block in written[0].keys() & written[1].keys():
        roles, others = (frozenset(each[block]) for each in written)
        if not (undone := earlier[0].undone_by(roles, others)):
            continue
        layers = [
            set(layers_to_write(seen, scheme, given, [block])[block]) for scheme, seen, _ in both
        ]
        if layers[0].isdisjoint(layers[1]):
            continue
        first, second = (name_of(scheme) for scheme, *_ in both)
        names.insert(names.index(second) + 1, names[at := names.index(first)])
        del names[at]
        advice = f"give ({', '.join(names)}), in this order"
        if later[0].undone_by(others, roles):
            advice = "take one of the two"
        raise InputError(
            f"{second} writes {written[1][block][min(undone)]} after {first}, whose draw it would "
            f"undo: {advice}"
        )


def in_layers(
    tree: Tree, key: jax.Array, scheme: Scheme, around: Context, block: str, layers: Layers
) -> Drawn:
    """The draw of a block in these layers of it."""
    draws: dict[int | None, dict[str, jax.Array]] = {}
    for layer in layers:
        at, count = depth(tree, block, layer)
        context = dataclasses.replace(around, layer=at, num_layers=count)
        with blaming(block):
            view = tree.view(block, layer)
            if arrays := scheme(block_key(key, block, layer), view, context):
                draws[layer] = arrays
    joined = {}
    for role in sorted({role for arrays in draws.values() for role in arrays}):
        every: list[Any] = [arrays[role] for arrays in draws.values()]
        traced = any(isinstance(array, jax.core.Tracer) for array in every)
        every = every if traced else [np.asarray(array) for array in every]
        array = every[0] if layers == [None] else (jnp if traced else np).stack(every)
        leaf = tree.blocks[block][role]
        joined[role] = array if traced else in_dtype(leaf.path, array, tree.dtype(leaf))
    return list(draws), joined


def in_loop(
    tree: Tree, key: jax.Array, scheme: Scheme, around: Context, block: str, layers: Layers
) -> Drawn:
    """As `in_layers`, for traced stacks: a program of one layer, whose size their number leaves."""
    first, count = depth(tree, block, 0)

    def draw(layer: Any) -> dict[str, jax.Array]:
        # A scheme that read the layer without declaring that it does would fail here.
        context = dataclasses.replace(around, layer=first + layer, num_layers=count)
        return scheme(block_key(key, block, layer), tree.view(block, layer), context)

    with blaming(block):
        return layers, jax.lax.map(draw, jnp.arange(len(layers)))


def layers_to_write(
    tree: Tree, scheme: Scheme, given: Context, blocks: Sequence[str]
) -> dict[str, Layers]:
    """The layers that a scheme writes in each of these blocks; computes nothing, but refuses what
    the draw would refuse."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    # As an argument of a program has: 32 bits, unless JAX has 64 enabled.
    canonical = functools.partial(jax.dtypes.canonicalize_dtype, allow_extended_dtype=True)
    leaves = [jax.ShapeDtypeStruct(np.shape(x), canonical(dtype_of(x))) for x in tree.leaves]
    written = {block: tree.layers(block) for block in blocks}

    def survey(leaves: list[Any]) -> Any:
        traced = tree.with_leaves(leaves)
        return scheme.survey(lambda: network(traced))

    def draw(block: str, layer: int | None, key: Any, leaves: list[Any], surveyed: Any) -> Any:
        traced = tree.with_leaves(leaves)
        around = dataclasses.replace(surroundings(traced, given), surveyed=surveyed)
        return in_layers(traced, key, scheme, around, block, [layer])[1]

    surveyed = jax.eval_shape(survey, leaves)
    for block, layer in _samples(tree, scheme, blocks):
        if not jax.eval_shape(functools.partial(draw, block, layer), key, leaves, surveyed):
            written[block].remove(layer)
    if not any(written.values()):
        raise all_skipped(scheme, blocks)
    return written


def all_skipped(scheme: Scheme, blocks: Sequence[str]) -> InputError:
    """The error of a scheme that writes none of these blocks."""
    others = f" (and {len(blocks) - 3} more)" if len(blocks) > 3 else ""
    return InputError(
        f"{name_of(scheme)} skips every layer: {', '.join(blocks[:3])}{others} stay unchanged"
    )


def _samples(tree: Tree, scheme: Scheme, blocks: Sequence[str]) -> Iterable[tuple[str, int | None]]:
    """A layer of each kind; every layer, if the scheme may depend on depth."""
    every = [(block, layer) for block in blocks for layer in tree.layers(block)]
    if depth_dependence(scheme):
        return every
    kinds: dict[Any, tuple[str, int | None]] = {}
    for block, layer in every:
        described = tree.blocks[block].values()
        shapes = sorted((leaf.role, leaf.shape, leaf.rule.layout) for leaf in described)
        kinds.setdefault((paths.family(block), *shapes), (block, layer))
    return kinds.values()
