"""Leaves whose shapes disagree: with their layout, with each other, with the number of heads."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import paths
from mimetic_jax.rules.layout import grouped_advice
from mimetic_jax.rules.rule import ATTENTION
from mimetic_jax.schemes.base import attention_kernels
from mimetic_jax.tree.around import vectors
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.template import (
    Call,
    attention_call,
    mlp_call,
    output_first,
    part_of,
    rules_argument,
    without,
)
from mimetic_jax.tree.tree import Tree

Blocks: TypeAlias = Sequence[tuple[str, Sequence[Leaf]]]
"""Blocks by their paths, with the leaves that are used of them."""

_SAME_SIZES = (
    ("query", "query_bias", "hk"),
    ("key", "key_bias", "gk"),
    ("value", "value_bias", "gk"),
    ("query", "out", "h"),
    ("key", "value", "g"),
    ("value", "out", "k"),
)
"""Axes that two roles of an attention layer share. (Those of a product are checked where it is
computed.)"""


def check_shapes(tree: Tree, used: Blocks) -> None:
    """Raise InputError if leaves that are used don't fit their rules, those beside them or the
    numbers of heads.

    Args:
        tree: a labeled tree.
        used: its blocks, with the leaves that are read or written.
    """
    if any(leaf.role in (*ATTENTION, "mlp_in", "mlp_out") for _, leaves in used for leaf in leaves):
        _check_order(tree)
    for block, leaves in used:
        # First, as its error says what is wrong with layers that are read as a width.
        _check_heads(tree, block, frozenset(leaf.role for leaf in leaves))
        for leaf in leaves:
            leaf.check()
            tree.check_writable(block, leaf)
        _check_mlp(tree, block, leaves)
    _check_given_heads(tree, used)
    _check_one_width(tree, used)
    _check_stacked(tree, used)


def _check_order(tree: Tree) -> None:
    """Raise InputError if a name alone has kernels of attention stored in an order by which the
    width is that of no other leaf, or another one than by the first kernels of MLPs."""
    kinds = {
        (paths.family(block), *(leaf.shape for leaf in leaves.values())): leaves
        for block, leaves in [*tree.blocks.items()][::-1]
        if tree.family and {*ATTENTION} <= leaves.keys()
    }
    for leaves in kinds.values():
        query = leaves["query"]
        inputs, outputs = query.rule.matrix
        shown = output_first(_shapes(leaves), list(tree.shapes.items()))
        if shown in (None, outputs < inputs) or not (call := _call(tree, leaves)):
            continue
        order = ("(in, out)", "(out, in)")
        raise InputError(
            f"{query.path} of shape {query.shape} would be read as {order[not shown]} by its name, "
            f"and is {order[shown]} by the shapes of other leaves: "
            f"pass {rules_argument([call], tree.name_of_rules)}"
        )


def check_columns(tree: Tree, block: str, layer: int | None) -> None:
    """Raise InputError if attention has an array over a head's columns that no rule describes."""
    dim = next(leaf.sizes["d"] for leaf in tree.blocks[block].values() if "d" in leaf.sizes)
    for path in vectors(tree, block, layer, 0):
        # Those of the width are norms of the layer, whose gain is taken for 1.
        if dim not in tree.shapes[path]:
            raise InputError(
                f"no rule describes {path}, on which logits depend: if it is the gain of a norm "
                "over a head's columns, add Rule(path, 'query_gain', 'k') or 'key_gain'"
            )


def _check_heads(tree: Tree, block: str, used: frozenset[str]) -> None:
    """Raise InputError if the leaves of an attention layer disagree about its heads."""
    touched = attention_kernels(frozenset(re.sub("_(bias|gain)$", "", role) for role in used))
    if not touched:
        return
    leaves = {role: leaf for role, leaf in tree.blocks[block].items() if leaf.fits}
    _check_axis_of_layers(tree, [leaf for role, leaf in leaves.items() if role in ATTENTION])
    for wide, narrow in (("query", "key"), ("out", "value")):
        if not touched & {wide, narrow} or not {wide, narrow} <= leaves.keys():
            continue
        widths = [leaves[role].axes["k"] for role in (wide, narrow)]
        if leaves[narrow].rule.stored.flattens("g") and widths[0] != widths[1]:
            raise InputError(
                f"{leaves[wide].path} has heads of width {widths[0]}, {leaves[narrow].path} of "
                f"width {widths[1]}, by {leaves[wide].axes['h']} query heads and "
                f"{leaves[narrow].axes['g']} key/value heads: "
                + ("one of these numbers is wrong" if tree.grouped else "pass num_kv_heads")
            )
    for first, second, shared in _SAME_SIZES:
        if {first, second} <= leaves.keys():
            leaf, other = leaves[first], leaves[second]
            if any(leaf.axes[axis] != other.axes[axis] for axis in shared):
                advice = f"; {grouped_advice()}" if "three" in leaf.rule.layout else ""
                if tree.family and (call := _call(tree, leaves)):
                    advice = f": pass {rules_argument([call])}"
                raise InputError(
                    f"{leaf.path} of shape {leaf.shape} and {other.path} of shape {other.shape} "
                    f"have different heads by their layouts {leaf.rule.layout!r} and "
                    f"{other.rule.layout!r}{advice}"
                )


def _call(tree: Tree, leaves: Mapping[str, Leaf]) -> Call | None:
    return attention_call(_shapes(leaves), every=list(tree.shapes.items()))


def _shapes(leaves: Mapping[str, Leaf]) -> list[tuple[str, tuple[int, ...]]]:
    return [(leaf.path, leaf.shape) for leaf in leaves.values()]


def _check_axis_of_layers(tree: Tree, kernels: Collection[Leaf]) -> None:
    """Raise InputError if nothing shows along which axis common layers are stacked: L = D = H."""
    stacked = [leaf for leaf in kernels if leaf.rule.stored.stacked]
    if not stacked or tree.family is None or tree.family.by_layer:
        return
    if all(leaf.shape[0] == leaf.shape[1] for leaf in stacked):
        raise InputError(
            f"{stacked[0].path} of shape {stacked[0].shape} may stack layers along its first or "
            "its second axis: pass rules=attention_rules(stacked=True) or "
            "rules=attention_rules(stacked=True, axis=1)"
        )


def _check_mlp(tree: Tree, block: str, used: Sequence[Leaf]) -> None:
    """Raise InputError if the two layers of an MLP aren't one, or have another width than the
    attention of their layer: a classifier or an adapter may have the names of an MLP's layers, and
    Linen numbers those of nn.Dense(D)(nn.gelu(nn.Dense(F)(x))) from the last."""
    kernels = [leaf for leaf in used if leaf.role in ("mlp_in", "mlp_out")]
    if not kernels:
        return
    first, second = (tree.blocks[block].get(role) for role in ("mlp_in", "mlp_out"))
    if first is None or second is None:
        other = {"mlp_in", "mlp_out"} - {kernels[0].role}
        if not any(other & {*rule.roles} for rule in tree.rules):
            return  # whoever describes one layer alone has decided
        raise InputError(
            f"{kernels[0].path} is {kernels[0].role} of an MLP by its rule, and no leaf beside it "
            "is the other layer: leave it out with "
            f"{without(tree.name_of_rules, kernels[0].path)}, or describe the other one"
        )
    first.check()
    second.check()
    shapes = f"{first.path} of shape {first.shape} and {second.path} of shape {second.shape}"
    leave_out = without(tree.name_of_rules, first.path, second.path)
    if first.axes != second.axes:
        raise InputError(
            f"{shapes} are not an MLP whose output is as wide as its input. If they are a "
            f"classifier, leave them out with {leave_out}"
        )
    width, (d, f) = _width_beside(tree, block), (first.axes[axis] for axis in "df")
    beside, of_linen = "attention beside them has", "Dense_" in first.rule.path
    if width is None and tree.family and not of_linen and _widths(tree) & {d, f} == {f}:
        width, beside = f, "other leaves have"
    reversed_ = of_linen and d > f and width in (None, f)
    if width not in (None, d) or (reversed_ and tree.family):
        every = list(tree.shapes.items())
        leaves = [leaf for leaf in every if leaf[0] in (first.path, second.path)]
        known = reversed_ or width == f
        call = known and mlp_call(leaves, every=every, widths=[width] if width else [])
        told = (
            f"and the {beside} width {width}: pass"
            if width
            else "and Linen numbers the layers of nn.Dense(D)(nn.gelu(nn.Dense(F)(x))) from the "
            "last: pass, by the order in which the model applies them,"
        )
        text = call.text if call else "mlp_rules(first=…, second=…)"
        raise InputError(
            f"{shapes} map {d} to {f} numbers and back, {told} "
            f"{rules_argument([Call(text)], tree.name_of_rules)}, or leave them out with "
            f"{leave_out}"
        )


def _widths(tree: Tree) -> set[int]:
    """The sizes of all leaves but those of the hidden layers of MLPs."""
    hidden = {"mlp_in", "mlp_in_bias", "mlp_gate", "mlp_out"}
    return {
        size
        for path, shape in tree.shapes.items()
        if path not in tree.rule_of or hidden.isdisjoint(tree.rule_of[path].roles)
        for size in shape
    }


def _width_beside(tree: Tree, block: str) -> int | None:
    """The width of the attention in the layer of an MLP's block; None if none or several are."""
    for place in paths.meeting(block, "mlp"):
        widths = {
            leaf.rule.width(leaf.shape)
            for other, leaves in tree.blocks.items()
            if place in paths.meeting(other, "attention")
            for role, leaf in leaves.items()
            if role in ATTENTION
        }
        if widths:
            return widths.pop() if len(widths) == 1 else None
    return None


def _check_given_heads(tree: Tree, used: Blocks) -> None:
    """Raise InputError for a `num_heads` that no attention has, if all store their heads apart."""
    kernels = [x for _, leaves in used for x in leaves if x.role in ATTENTION and x.fits]
    for axis, name in (("h", "num_heads"), ("g", "num_kv_heads")):
        stored = [x for x in kernels if axis in x.axes]
        given = tree.heads[axis] if axis == "h" or tree.grouped else None
        if not given or any(x.rule.stored.flattens(axis) for x in kernels):
            continue
        if stored and given not in {x.axes[axis] for x in stored}:
            raise InputError(
                f"{name} is {given}, and {stored[0].path} of shape {stored[0].shape} holds "
                f"{stored[0].axes[axis]} heads apart: leave {name} out"
            )


def _check_one_width(tree: Tree, used: Blocks) -> None:
    """Raise InputError if one `num_heads` would divide attention of several widths: the parts of a
    model have numbers of heads of their own."""
    divided = []
    for block, leaves in used:
        kernels = [leaf for leaf in leaves if leaf.role in ATTENTION and leaf.fits]
        if kernels and kernels[-1].rule.heads is None:
            leaf = kernels[-1]  # query or value, if these are written
            flat = leaf.rule.stored.flattens("h") or leaf.rule.stored.flattens("g")
            if flat and "relative_bias" not in tree.blocks[block]:
                gain = tree.blocks[block].get("query_gain")  # as wide as a head
                divided.append((leaf, gain is not None and gain.fits))
    for leaf, sure in divided:
        first, first_sure = divided[0]
        axes, others = first.axes, leaf.axes
        if axes["d"] != others["d"]:
            widths = f"width {axes['d']} and {leaf.path} width {others['d']}, which"
        elif axes["k"] != others["k"] and not (sure and first_sure):
            widths = (
                f"heads of width {axes['k']} and {leaf.path} of width {others['k']}: one of "
                "them may have had heads pruned, so that it"
            )
        else:
            continue
        raise InputError(
            f"{first.path} has {widths} may have other numbers of heads than "
            f"{tree.heads['h']}: leave one of them out with "
            f"{without(tree.name_of_rules, part_of(leaf.path, first.path), keep=True)}, or pass a "
            "rule for each with its own heads=…"
        )


def _check_stacked(tree: Tree, used: Blocks) -> None:
    """Raise InputError if a layer stacks some of its leaves, here or among others of its kind."""
    kinds = {paths.family(block) for block, _ in used}
    for block, leaves in tree.blocks.items():
        stacks = {leaf.layers for leaf in leaves.values() if leaf.fits}
        if len(stacks) > 1 and paths.family(block) in kinds:
            raise InputError(
                f"{block}: some of its leaves stack layers and some don't. If all do, pass "
                "rules=attention_rules(stacked=True, flat=…, axis=…)"
            )
