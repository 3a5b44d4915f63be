"""The draws of schemes for the blocks of a tree, and the layers in which they draw."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.base.typed import SEED, converted
from mimetic_jax.rules import paths
from mimetic_jax.rules.names import embeds_positions
from mimetic_jax.rules.rule import FIRST_LAYER
from mimetic_jax.schemes import Context, Scheme
from mimetic_jax.schemes.base import depth_dependence, name_of
from mimetic_jax.tree import shapes
from mimetic_jax.tree.around import depth, of_text, surroundings
from mimetic_jax.tree.layers import network
from mimetic_jax.tree.match import Match, covered, match, wanted_by
from mimetic_jax.tree.refusal import refuse
from mimetic_jax.tree.tied import check_told, tie
from mimetic_jax.tree.tree import Tree, dtype_of
from mimetic_jax.weights.checks import check_key, in_dtype

Layers: TypeAlias = list[int | None]
Drawn: TypeAlias = dict[str, Any]
"""The new canonical arrays of a block by role: [...], or [L, ...] if it stacks layers."""


def block_key(key: jax.Array, path: str, layer: int | jax.Array | None = None) -> jax.Array:
    """The key of one block: it depends on the block's path, not on the rest of the tree.

    Args:
        key: the key given to `rewrite`.
        path: the block's path, such as "block_3/attention"; "" for the root.
        layer: index of the layer in a block that stacks its layers, else None.

    Raises:
        InputError: if the key isn't one, the path no text, or the layer not from 0 to 2³² − 1.

    Example:
        >>> same = block_key(jax.random.key(0), "block_0/attention")
        >>> bool((same == block_key(jax.random.key(0), "block_0/attention")).all())
        True
    """
    check_key(key)
    key = jax.random.fold_in(key, zlib.crc32(converted("path", str, path).encode()))
    if not isinstance(layer, jax.core.Tracer):
        layer = converted("layer", Annotated[int, SEED] | None, layer)
    return key if layer is None else jax.random.fold_in(key, layer)


def in_order(tree: Tree, schemes: Sequence[Scheme]) -> list[Match[Scheme]]:
    """What each scheme writes, after all checks.

    Copies of an embedding are found by their values, so where schemes write it or the output layer.

    Raises:
        InputError: if a scheme finds nothing to write or what isn't known, if shapes don't fit, or
            if it undoes what one before it has drawn.
    """
    if any(not FIRST_LAYER.isdisjoint(wanted_by(scheme)) for scheme in schemes):
        tree = tie(tree)
    wanted = frozenset(itertools.chain(*map(wanted_by, schemes)))
    matches = [_checked(tree.with_read_only() if x.gated else tree, x, wanted) for x in schemes]
    for earlier, later in itertools.combinations(matches, 2):
        _check_not_undone(earlier, later, list(map(name_of, schemes)))
    return matches


def _checked(tree: Tree, scheme: Scheme, wanted: frozenset[str]) -> Match:
    """What a scheme writes, and of which it draws a layer; `wanted` is what all schemes write."""
    found = match(tree, scheme)
    refuse(found, wanted)
    shapes.check_shapes(tree, found.blocks)
    check_told(tree, found.roles)
    present = frozenset(itertools.chain(*tree.blocks.values()))
    if any("embedding" in rule.roles and rule.untied for rule in tree.rules):
        present |= {"unembedding"}  # though the tree may lack it, as a base model does

    def of_images(table: str) -> bool:
        """Whether a table belongs to patches, in a tree that has tokens, too."""
        return "embedding" in present and of_text(tree, table) is False

    tables = [leaves["position"].path for leaves in tree.blocks.values() if "position" in leaves]
    if all(map(of_images, tables)):
        present -= {"position"}
    scheme.check_tree(present, found.roles)
    if scheme.exact and not (tree.family and tree.family.by_layer):
        for path in itertools.filterfalse(of_images, _unruled_positions(tree)):
            with blaming(path):
                scheme.check_tree(present | {"position"}, found.roles)
    for block, _ in found.blocks if scheme.exact and tree.family else ():
        if "query" in tree.blocks[block]:
            shapes.check_columns(tree, block, tree.layers(block)[0])
    drawn = [(block, leaves) for block, leaves in found.blocks if covered(tree, scheme, block)]
    if not drawn:
        blocks = [block for block, _ in found.blocks]
        others = f" (and {len(blocks) - 3} more)" if len(blocks) > 3 else ""
        raise InputError(
            f"{name_of(scheme)} skips every layer: {', '.join(blocks[:3])}{others} stay unchanged"
        )
    return dataclasses.replace(found, blocks=drawn)


def _unruled_positions(tree: Tree) -> Iterator[str]:
    """Tables of positions, by their names and the width of attention, that no rule describes."""
    leaves = (leaf for roles in tree.blocks.values() for leaf in roles.values() if leaf.fits)
    widths = {leaf.axes.get("d") for leaf in leaves}
    for path, shape in tree.shapes.items():
        if path not in tree.rule_of and embeds_positions(path, shape) and shape[-1] in widths:
            yield path


def _check_not_undone(earlier: Match[Scheme], later: Match[Scheme], names: list[str]) -> None:
    """Raise InputError if the later scheme undoes the earlier one in a layer."""
    for before, after in _shared(earlier, later):
        roles, others = frozenset(before), frozenset(after)
        if not (undone := earlier.scheme.undone_by(roles, others)):
            continue
        first, second = (name_of(one.scheme) for one in (earlier, later))
        names.insert(names.index(second) + 1, names[at := names.index(first)])
        del names[at]
        advice = f"pass ({', '.join(names)}), in this order"
        instead = earlier.scheme.instead(others)
        replaced = not earlier.scheme.partial and _drawn(later) <= _drawn(earlier)
        if replaced or later.scheme.undone_by(others, roles):
            advice = "take one of the two"
        if instead:
            advice = f"pass {instead}"
        raise InputError(
            f"{second} writes {after[min(undone)]} after {first}, whose draw it would "
            f"undo: {advice}"
        )


def _shared(*matches: Match[Scheme]) -> Iterator[tuple[dict[str, str], ...]]:
    """What each of two schemes writes, paths by role: in a block of which both draw a layer; and of
    the first layer, which stands in several blocks."""
    written = [
        {block: {x.role: x.path for x in leaves} for block, leaves in one.blocks} for one in matches
    ]
    for block in written[0].keys() & written[1].keys():
        layers = (set(covered(one.tree, one.scheme, block)) for one in matches)
        if set.intersection(*layers):
            yield tuple(each[block] for each in written)
    yield tuple(
        {role: path for x in each.values() for role, path in x.items() if role in FIRST_LAYER}
        for each in written
    )


def _drawn(match: Match[Scheme]) -> set[tuple[str, int | None]]:
    """The leaves that a scheme draws, with the layers in which it does."""
    return {
        (leaf.path, layer)
        for block, leaves in match.blocks
        for layer in covered(match.tree, match.scheme, block)
        for leaf in leaves
    }


def in_layers(
    tree: Tree,
    key: jax.Array,
    scheme: Scheme,
    around: Context,
    block: str,
    layers: Layers,
    on_read: Callable[[str], object] = lambda role: None,
) -> Drawn:
    """The draw of a block in these layers of it; `on_read` is called with each role it reads."""
    drawn, draws = covered(tree, scheme, block), []
    for layer in layers:
        at, count = depth(tree, block, layer)
        context = dataclasses.replace(around, layer=at, num_layers=count)
        with blaming(block):
            view = tree.view(block, layer, on_read=on_read)
            draws.append(scheme(block_key(key, block, layer), view, context))
    joined = {}
    for role in sorted(draws[0]):
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


def check_draws(match: Match[Scheme], given: Context) -> frozenset[str]:
    """Trace a draw of each kind of layer and compute nothing.

    Returns:
        The roles that the draws read.

    Raises:
        InputError: if a draw would.
    """
    tree, scheme, read = match.tree, match.scheme, set[str]()
    key = jax.eval_shape(lambda: jax.random.key(0))
    # As an argument of a program has: 32 bits, unless JAX has 64 enabled.
    canonical = functools.partial(jax.dtypes.canonicalize_dtype, allow_extended_dtype=True)
    leaves = [jax.ShapeDtypeStruct(np.shape(x), canonical(dtype_of(x))) for x in tree.leaves]

    def survey(leaves: list[Any]) -> Any:
        traced = tree.with_leaves(leaves)
        return scheme.survey(lambda: network(traced), match.roles)

    def draw(block: str, layer: int | None, key: Any, leaves: list[Any], surveyed: Any) -> Drawn:
        traced = tree.with_leaves(leaves)
        around = dataclasses.replace(surroundings(traced, given), surveyed=surveyed)
        return in_layers(traced, key, scheme, around, block, [layer], read.add)

    surveyed = jax.eval_shape(survey, leaves)
    for block, layer in _samples(match):
        jax.eval_shape(functools.partial(draw, block, layer), key, leaves, surveyed)
    return frozenset(read)


def _samples(match: Match[Scheme]) -> Iterable[tuple[str, int | None]]:
    """A layer of each kind; every layer, if the scheme may depend on depth."""
    tree, scheme, blocks = match.tree, match.scheme, [block for block, _ in match.blocks]
    every = [(block, layer) for block in blocks for layer in tree.layers(block)]
    if depth_dependence(scheme):
        return every
    kinds: dict[Any, tuple[str, int | None]] = {}
    for block, layer in every:
        described = tree.blocks[block].values()
        shapes = sorted((leaf.role, leaf.shape, leaf.rule.layout) for leaf in described)
        kinds.setdefault((paths.family(block), *shapes), (block, layer))
    return kinds.values()
