"""Each attention of a tree with the MLP of its layer; a decoder's layers in their order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import ATTENTION
from mimetic_jax.schemes import Block
from mimetic_jax.schemes.network import Network, NetworkLayer
from mimetic_jax.tree import shapes
from mimetic_jax.tree.around import bias_beside, norms_around
from mimetic_jax.tree.match import match
from mimetic_jax.tree.refusal import refuse
from mimetic_jax.tree.tied import tie
from mimetic_jax.tree.tree import Tree

View: TypeAlias = tuple[str, int | None, Block]
"""(path, layer, block), as `views` lists them: arrays are read when they are asked for."""

KERNELS = {"query_key": ("query", "key"), "by_head": ("value", "out"), "mlp": ("mlp_in", "mlp_out")}
"""The two kernels of each product."""
PRODUCTS = {"attention": ("query_key", "by_head"), "mlp": ("mlp",)}
"""The products of each kind of layer."""


def views(tree: Tree, *, read_only: bool = False) -> list[View]:
    """What `blocks` returns; with the leaves that schemes leave as they are, if `read_only`."""
    tree = tie(tree.with_read_only() if read_only else tree)
    attention = match(tree, None)
    refuse(attention)
    shapes.check_shapes(tree, attention.blocks)
    return [
        (block, layer, tree.view(block, layer, norms))
        for block in sorted(tree.blocks, key=paths.natural_order)
        if any(leaf.fits for leaf in tree.blocks[block].values())
        for norms in [norms_around(tree, block, tree.blocks[block])]
        for layer in tree.layers(block)
    ]


def paired(views: Iterable[View]) -> list[dict[str, View]]:
    """Each attention with the MLP of its block, and MLPs of other blocks alone, sorted by path."""
    attention = [view for view in views if _has_product("attention", view[2])]
    mlps = {view[:2]: view for view in views if _has_product("mlp", view[2])}
    by_place = {(place, at[1]): at for at in mlps for place in paths.meeting(at[0], "mlp")}
    layers = []
    for view in attention:
        places = paths.meeting(view[0], "attention")
        near = (by_place.get((place, view[1])) for place in places)
        beside = next((at for at in near if at in mlps), None)
        layers.append({"attention": view} | ({"mlp": mlps.pop(beside)} if beside else {}))
    layers += [{"mlp": view} for view in mlps.values()]
    return sorted(layers, key=lambda parts: paths.natural_order(_name(parts)))


def _name(parts: dict[str, View]) -> str:
    return paths.of_layer(*next(iter(parts.values()))[:2])  # of the attention, if there is one


def _has_product(kind: str, block: Block) -> bool:
    if not any(block.keys() >= set(KERNELS[name]) for name in PRODUCTS[kind]):
        return False
    # The layers of a classifier may have the names of an MLP's.
    return kind != "mlp" or block.shapes["mlp_out"] == block.shapes["mlp_in"][::-1]


def network(tree: Tree) -> Network:
    """The decoder that a tree holds.

    Raises:
        InputError: if it has no embedding of tokens or several, attention of several kinds, or
            arrays beside attention's kernels that no rule describes.
    """
    tree = tie(tree)
    every = views(tree, read_only=True)
    embeddings = [block for _, _, block in every if "embedding" in block]
    layers = [parts for parts in paired(every) if "attention" in parts]
    kinds = sorted({paths.family(parts["attention"][0]) for parts in layers})
    whole = all(parts["attention"][2].keys() >= set(ATTENTION) for parts in layers)
    if len(embeddings) != 1 or len(kinds) != 1 or not whole:
        raise InputError(
            f"the tree has {len(embeddings)} embeddings of tokens and {len(kinds)} kinds of "
            f"attention ({', '.join(kinds[:3])}): activations are followed through one "
            "decoder; leave the rest out by the rules' `within`"
        )
    for parts in layers:
        shapes.check_columns(tree, *parts["attention"][:2])
    writable = frozenset(role for leaves in tree.blocks.values() for role in leaves)
    each = tuple(_layer(tree, parts) for parts in layers)
    return Network(embeddings[0], each, _last_norm(tree.with_read_only()), writable)


def _last_norm(tree: Tree) -> Block | None:
    """That before the output layer; None if no rule describes it."""
    found = [block for block, leaves in tree.blocks.items() if "tied_gain" in leaves]
    if len(found) != 1:
        return None
    shift = bias_beside(tree, tree.blocks[found[0]]["tied_gain"])
    return tree.view(found[0], None, {"tied_shift": shift} if shift else {})


def _layer(tree: Tree, parts: dict[str, View]) -> NetworkLayer:
    after, parallel = set(), False
    for kind, (path, _, block) in parts.items():
        norms = norms_around(tree, path, block.keys())
        if kind == "mlp":
            gain = norms.get("mlp_gain")
            parallel = gain is not None and "shared_gain" in gain.rule.roles
        scale = norms.get(f"{kind}_scale")
        if scale and re.search("(?i)norm|(^|[/.])ln", scale.path):
            after.add(kind)
    mlp = parts["mlp"][2] if "mlp" in parts else None
    path, index, attention = parts["attention"]
    return NetworkLayer((path, index), attention, mlp, parallel, frozenset(after))
