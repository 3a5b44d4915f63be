"""What stands around a block of a tree: norms, other arrays, its depth, the positions."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable

import jax
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import names, paths
from mimetic_jax.rules.rule import ATTENTION
from mimetic_jax.schemes import Context
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.tree import Tree
from mimetic_jax.weights.checks import pair
from mimetic_jax.weights.position import square_grid

_KINDS = {"attention": frozenset(ATTENTION), "mlp": frozenset(("mlp_in", "mlp_out"))}
_BIAS = re.compile(r"(bias|(^|[/.])(beta|b))$")


def norms_around(tree: Tree, block: str, roles: Collection[str]) -> dict[str, Leaf]:
    """The gains and scales of a block by role: those of the nearest place, with the biases of
    norms as shifts."""
    kinds = [kind for kind, kernels in _KINDS.items() if not kernels.isdisjoint(roles)]
    norms = {}
    for role in (f"{kind}_{what}" for kind in kinds for what in ("gain", "scale")):
        names = (role, "shared_gain") if role.endswith("gain") else (role,)
        for leaves in (tree.norms.get(place, {}) for place in paths.above(block)):
            if leaf := next((leaves[name] for name in names if name in leaves), None):
                leaf.check()
                norms[role] = leaf
                if role.endswith("gain") and (shift := bias_beside(tree, leaf)):
                    norms[role.replace("gain", "shift")] = shift
                break
    return norms


def bias_beside(tree: Tree, gain: Leaf) -> Leaf | None:
    """The bias of the norm that has this gain."""
    if not (layer := paths.parent(gain.path)):
        return None
    for path in tree.inside[layer]:
        index = tree.indices[path]
        if _BIAS.search(path) and np.shape(tree.leaves[index]) == gain.shape:
            rule = dataclasses.replace(gain.rule, role="attention_shift", form=False)
            return dataclasses.replace(
                gain, index=index, path=path, role="attention_shift", rule=rule
            )
    return None


def _columns(tree: Tree, block: str) -> frozenset[int]:
    """The numbers of heads of a block, of the columns of one, and of all."""
    sizes = [leaf.axes for leaf in tree.blocks[block].values() if leaf.fits and "k" in leaf.axes]
    heads = {axes[name] for axes in sizes for name in "hg" if name in axes}
    widths = {axes["k"] for axes in sizes}
    return frozenset(heads | widths | {count * width for count in heads for width in widths})


def vectors(tree: Tree, block: str, layer: int | None, width: int) -> dict[str, bool]:
    """Other arrays [D] in the layer of a block, or of a head or its columns in the block
    itself, by path: True if they are norms after the sum.

    False are those that no rule describes; biases aren't among them.
    """
    # "layers/0" of "layers/0/self_attn"
    places = [place for place in paths.above(block)[:4] if place]
    numbered = (place for place in places if layer is None and place[-1].isdecimal())
    place = next(numbered, places[min(1, len(places) - 1)] if places else "")
    columns = _columns(tree, block)
    after_sum = {}
    for path, shape in tree.shapes.items():
        at = path.replace(".", "/")
        inside = not place or at.startswith(f"{place}/")
        own = at.startswith(f"{block.replace('.', '/')}/" if block else "")
        known = width in shape or (own and not columns.isdisjoint(shape))
        if inside and known and len(shape) == (1 if layer is None else 2):
            rule = tree.rule_of.get(path)
            after = rule is not None and "post_norm" in rule.roles
            if after or (rule is None and not _BIAS.search(path)):
                after_sum[path] = after
    return after_sum


def families(tree: Tree, blocks: Iterable[str]) -> list[tuple[str, ...]]:
    """The names of the layers of each kind that has several, in the order of depth."""
    names: dict[str, list[str]] = defaultdict(list)
    for block in blocks:
        layers = _depths(tree, block)
        names[paths.family(block)] += [paths.of_layer(block, layer) for layer in layers]
    return [tuple(layers) for layers in names.values() if len(layers) > 1]


def depth(tree: Tree, block: str, layer: int | None) -> tuple[int, int]:
    """A layer's index among the blocks of its family, and their number.

    A block that stacks its layers counts as that many: the stages of a Swin are one family.
    """
    name = paths.family(block)
    family = [other for other in tree.blocks if paths.family(other) == name]
    depths = {other: _depths(tree, other) for other in sorted(family, key=paths.natural_order)}
    before = itertools.takewhile(lambda other: other != block, depths)
    at = 0 if depths[block] == [None] else layer or 0
    return sum(len(depths[other]) for other in before) + at, sum(map(len, depths.values()))


def _depths(tree: Tree, block: str) -> list[int | None]:
    """The layers that a block stacks; [None] if it is in one layer, with its experts or members."""
    layers, place = tree.layers(block), paths.layer(block)
    inner = re.split("[/.]", block)[place.count("/") + 1 :]
    if layers == [None] or not place or any(map(paths.is_layer, inner)):
        return layers
    name = paths.family(block)
    places = {paths.layer(other) for other in tree.blocks if paths.family(other) == name}
    alone = any(
        paths.layer(other) == place and tree.layers(other) == [None]
        for other, leaves in tree.blocks.items()
        if any(not kernels.isdisjoint(leaves) for kernels in _KINDS.values())
    )
    # Linen's name of a scanned module has a number, too, but stands for all of its layers.
    named = paths.is_layer(paths.family(place).removesuffix("/#")) and "Scan" not in place
    return [None] if alone or (named and len(places) > 1) else layers


def surroundings(tree: Tree, given: Context) -> Context:
    """What schemes use beside a block: what is given, the position table's rows for the patch
    grid, and whether the positions are of text: with a given grid they are of patches."""
    grid = None if given.grid is None else pair("the grid", given.grid)
    tables = [leaves["position"] for leaves in tree.blocks.values() if "position" in leaves]
    if len(tables) != 1 or not tables[0].fits:
        text = None if grid is None else False
        return dataclasses.replace(given, grid=grid, text=text)
    text = of_text(tree, tables[0].path) if grid is None else False
    count, _ = tables[0].canonical_shape
    if not text:
        grid = grid or square_grid(count) or square_grid(count - 1)
    known = dataclasses.replace(given, grid=grid, text=text)
    if grid is not None and not 0 <= count - grid[0] * grid[1] <= 2:
        raise InputError(
            f"a grid of {grid[0]}x{grid[1]} doesn't fit a table of {count} positions: "
            f"{tables[0].path} has a row for each patch, after those of up to two class tokens"
        )
    if grid is None or isinstance(tree.leaves[tables[0].index], jax.ShapeDtypeStruct):
        return known
    position = tree.canonical(tables[0], None)[count - grid[0] * grid[1] :]
    return dataclasses.replace(known, position=position)


def of_text(tree: Tree, table: str) -> bool | None:
    """Whether a table of positions is of tokens, not of patches, by its path; None if unknown."""
    described = {
        leaf.index
        for leaves in tree.blocks.values()
        for role, leaf in leaves.items()
        if not leaf.rule.of_first_layer
    }
    others = (
        (path, len(shape))
        for index, (path, shape) in enumerate(tree.shapes.items())
        if index not in described
    )
    text = names.of_text(table, others, tree.indices)
    patches = any("patch" in leaves for leaves in tree.blocks.values())
    if (
        text is None
        and patches
        and not any(itertools.starmap(names.embeds_tokens, tree.shapes.items()))
    ):
        return False  # their name isn't that of patches
    return text
