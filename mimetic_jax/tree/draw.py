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
from mimetic_jax.tree.match import checked_match, covered
from mimetic_jax.tree.tree import Matches, Tree, dtype_of
from mimetic_jax.weights.checks import check_key, in_dtype

Applied: TypeAlias = tuple[Scheme, Tree, Matches]
"""A scheme, the tree as it sees it, and the leaves that it writes there."""
Layers: TypeAlias = list[int | None]
Drawn: TypeAlias = dict[str, Any]
"""The new canonical arrays of a block by role: [...], or [L, ...] if it stacks layers."""


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
        _check_not_undone(earlier, later, [name_of(scheme) for scheme, *_ in applied])
    return applied


def _check_not_undone(earlier: Applied, later: Applied, names: list[str]) -> None:
    """Raise InputError if the later scheme undoes the earlier one in a layer."""
    both = earlier, later
    written = [{block: {x.role: x.path for x in leaves} for block, leaves in of} for *_, of in both]
    for block in written[0].keys() & written[1].keys():
        roles, others = (frozenset(each[block]) for each in written)
        if not (undone := earlier[0].undone_by(roles, others)):
            continue
        layers = (set(covered(seen, scheme, block)) for scheme, seen, _ in both)
        if not set.intersection(*layers):
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
    drawn, draws = covered(tree, scheme, block), []
    for layer in layers:
        at, count = depth(tree, block, layer)
        context = dataclasses.replace(around, layer=at, num_layers=count)
        with blaming(block):
            view = tree.view(block, layer)
            draws.append(scheme(block_key(key, block, layer), view, context))
    joined = {}
    for role in sorted(draws[0]) if draws else ():  # a stack may have no layers
        every: list[Any] = [arrays[role] for arrays in draws]
        leaf, traced = tree.blocks[block][role], any(isinstance(x, jax.core.Tracer) for x in every)
        if not traced:  # a layer's own arrays keep the digits that its factor needs
            every = [
                in_dtype(leaf.path, np.asarray(x), tree.dtype(leaf)) if layer in drawn else x
                for layer, x in zip(layers, every, strict=True)
            ]
        joined[role] = every[0] if layers == [None] else (jnp if traced else np).stack(every)
    return joined


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
        return jax.lax.map(draw, jnp.arange(len(layers)))


def check_draws(tree: Tree, scheme: Scheme, given: Context, blocks: Sequence[str]) -> None:
    """Raise InputError if the draw in these blocks would; computes nothing."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    # As an argument of a program has: 32 bits, unless JAX has 64 enabled.
    canonical = functools.partial(jax.dtypes.canonicalize_dtype, allow_extended_dtype=True)
    leaves = [jax.ShapeDtypeStruct(np.shape(x), canonical(dtype_of(x))) for x in tree.leaves]

    def survey(leaves: list[Any]) -> Any:
        traced = tree.with_leaves(leaves)
        return scheme.survey(lambda: network(traced))

    def draw(block: str, layer: int | None, key: Any, leaves: list[Any], surveyed: Any) -> Drawn:
        traced = tree.with_leaves(leaves)
        around = dataclasses.replace(surroundings(traced, given), surveyed=surveyed)
        return in_layers(traced, key, scheme, around, block, [layer])

    surveyed = jax.eval_shape(survey, leaves)
    for block, layer in _samples(tree, scheme, blocks):
        jax.eval_shape(functools.partial(draw, block, layer), key, leaves, surveyed)


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
