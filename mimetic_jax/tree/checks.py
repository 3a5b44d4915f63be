"""Why a tree is refused: leaves that disagree, belong to something else, or have a scale."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import shown
from mimetic_jax.rules import paths
from mimetic_jax.rules.layout import grouped_advice, own_rules
from mimetic_jax.rules.rule import ATTENTION
from mimetic_jax.schemes import Scheme
from mimetic_jax.schemes.base import attention_kernels
from mimetic_jax.tree.advice import (
    UNDIVIDED,
    advice_on_groups,
    calls,
    hint,
    hint_of_heads,
    other_order,
    part_of,
    rules_without,
    stated,
    suggested,
    why_left_out,
)
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.zoo.suggestion import given

if TYPE_CHECKING:
    from mimetic_jax.tree.tree import Tree

_OPTIMIZER = re.compile(r"(^|/)opt(imizer)?_states?/")

# What files of quantized weights have beside a kernel, in its layer or with its name in front.
_SCALES = re.compile(
    r"(?i)(weight_|kernel_|w_|input_)?(scales?(_inv)?|zeros|zero_?points?|absmax|scb|quant_state)"
    r"([/._].*)?"
)

_STOCK = ("zoo.FLAX", "zoo.FLAX_STACKED")
# GPTBigCode, whose c_attn has a bias, has the names of a nanoGPT with biases.
_BIGCODE = re.compile(r"(^|[/.])attn[/.]c_attn[/.]bias$")

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


def is_scale(name: str) -> bool:
    """Whether a path in an attention's module is that of a quantized kernel's scale."""
    *layer, last = name.split("/")
    return bool(layer and _SCALES.fullmatch(last))


def check_is_tree(params: Any, names: Sequence[str]) -> None:
    """Raise InputError for an array or another leaf alone, which has no path."""
    if not all(names):
        raise InputError(
            f"{shown(params)} is not a tree of parameters: give a dictionary of arrays or "
            "another pytree, such as model.init(key, x)['params']"
        )


def check_fits(tree: Tree, block: str, leaf: Leaf) -> None:
    """Raise InputError if the shape of a leaf that is used doesn't fit, with what would."""
    if own_rules() in leaf.problem:
        inside = f"{block}/" if block else ""
        near = [path for path in tree.paths if path.replace(".", "/").startswith(inside)]
        call = suggested(tree, near) if leaf.role in ATTENTION else ""
        if not call and (others := calls(tree, [leaf.role], near)):
            call = given(others, tree.name_of_rules)
        if call:
            raise InputError(leaf.problem.replace(own_rules(), f"give {call}"))
    if "three" in leaf.rule.layout and grouped_advice() in leaf.problem:
        near = [path for path in tree.paths if paths.parent(path).startswith(block)]
        if "grouped=True" in (call := suggested(tree, near, beside="")):
            raise InputError(leaf.problem.replace(grouped_advice(), f"give {call}"))
    leaf.check()


def check_one_per_layer(tree: Tree, blocks: Iterable[str]) -> None:
    """Raise InputError for attentions of one layer that differ in a number alone.

    Flax numbers self-attention and cross-attention so, and other libraries call them attn1 and
    attn2.
    """
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for block in blocks if tree.found_rules else ():
        name = block.removeprefix(layer := paths.parent(block))
        if re.search("(?i)att|mha|multi_?head", name):
            alike[layer, re.sub(r"_?\d+$", "", name)].append(block)
    several = {where: found for where, found in alike.items() if len(found) > 1}
    layers = Counter(paths.family(layer) for layer, _ in several)
    for (layer, _), (first, second, *_) in several.items():
        if layers[paths.family(layer)] > 1 or tree.layers(first) != [None] or paths.is_layer(layer):
            one = rules_without(tree, f"{second}/", keep=True)
            raise InputError(
                f"{first} and {second} are in one layer, and their names don't tell "
                "self-attention from cross-attention: give "
                f"rules={tree.name_of_rules} if all of them are self-attention, or "
                f"leave one out with {one}"
            )


def check_partner(tree: Tree, block: str, leaf: Leaf) -> None:
    """Raise InputError if a leaf lacks the partner that its rule asks for, or doesn't fit it."""
    partner = leaf.rule.partner
    if partner and partner not in tree.blocks[block]:
        raise InputError(
            f"{leaf.path} has the name of {leaf.role}, but no leaf beside it that of its "
            f"{partner}: name the blocks to write with within=…, or give "
            f"Rule(path, {leaf.role!r}, layout)"
        )
    if partner:
        other = tree.blocks[block][partner]
        other.check()
        if any(other.axes[axis] != size for axis, size in leaf.axes.items()):
            raise InputError(
                f"{leaf.path} of shape {leaf.shape} and {other.path} of shape {other.shape} "
                "are no MLP whose output is as wide as its input: if they are a classifier, "
                f"leave them out with {rules_without(tree, leaf.path, other.path)}"
            )
        for query in (name for name in leaf.rule.needed if name.endswith("query/kernel")):
            width = np.shape(tree.leaves[tree.indices[f"{block}/{query}"]])[-3]
            if leaf.axes.get("d", width) != width:
                raise InputError(
                    f"{leaf.path} of shape {leaf.shape} isn't as wide as the attention beside it, "
                    f"{width}: leave it out with {rules_without(tree, leaf.path, other.path)}"
                )


def check_columns(tree: Tree, block: str, layer: int | None) -> None:
    """Raise InputError if attention has an array over a head's columns that no rule describes."""
    dim = next(leaf.sizes["d"] for leaf in tree.blocks[block].values() if "d" in leaf.sizes)
    for path in tree.vectors(block, layer, 0):
        # Those of the width are norms of the layer, whose gain is taken for 1.
        if dim not in np.shape(tree.leaves[tree.indices[path]]):
            raise InputError(
                f"no rule describes {path}, on which logits depend: if it is the gain of a norm "
                "over a head's columns, Rule(path, 'query_gain', 'k') or 'key_gain'"
            )


def check_unscaled(tree: Tree, block: str, leaf: Leaf) -> None:
    """Raise InputError for a kernel that is stored as a multiple of its scales."""
    if leaf.role.endswith("_shift"):
        return  # the norm's gain beside it is no scale of it
    if scale := tree.scaled.get(leaf.path):
        raise InputError(
            f"{leaf.path} is scaled by {scale}, as by a weight norm: its stored length has no "
            "effect, and a scheme would leave the scale as it is"
        )
    layer = paths.parent(leaf.path)
    kernel = leaf.path.removeprefix(layer).lstrip("/.")
    for path in (*tree.held[layer], *tree.held[leaf.path]):
        name = path.removeprefix(layer).lstrip("/.")
        if name.startswith(kernel):
            name = name.removeprefix(kernel).lstrip("/._")
        elif layer == block:  # a scale of its own, as of a norm or of logits
            continue
        if _SCALES.fullmatch(name):
            raise InputError(
                f"{leaf.path} is quantized or scaled by {path}, which a scheme would leave as "
                "it is: give the weights in floating point, without scales"
            )


def check_one_width(tree: Tree, blocks: Iterable[tuple[str, Iterable[Leaf]]]) -> None:
    """Raise InputError if one `num_heads` would divide attention of several widths."""
    divided = []
    for block, leaves in blocks:
        kernels = [leaf for leaf in leaves if leaf.role in ATTENTION and leaf.fits]
        if kernels and kernels[-1].rule.heads is None:
            leaf = kernels[-1]  # query or value, if these are written
            flat = leaf.rule.stored.flattens("h") or leaf.rule.stored.flattens("g")
            if flat and "relative_bias" not in tree.blocks[block]:
                gain = tree.blocks[block].get("query_gain")  # as wide as a head
                divided.append((leaf, gain is not None and gain.fits))
    for leaf, sure in divided:
        first, first_sure = divided[0]
        one, other = first.axes, leaf.axes
        if one["d"] != other["d"]:
            widths = f"width {one['d']} and {leaf.path} width {other['d']}, which"
        elif one["k"] != other["k"] and not (sure and first_sure):
            widths = (
                f"heads of width {one['k']} and {leaf.path} of width {other['k']}: one of them may "
                "have had heads pruned, so that it"
            )
        else:
            continue
        raise InputError(
            f"{first.path} has {widths} may have other numbers of heads than "
            f"{tree.heads['h']}: leave one of them out with "
            f"{rules_without(tree, part_of(leaf.path, first.path), keep=True)}, or give a "
            "rule for each with its own heads=…"
        )


def check_heads(tree: Tree, block: str, written: frozenset[str]) -> None:
    """Raise InputError if the leaves of an attention layer disagree about its heads."""
    touched = attention_kernels(frozenset(re.sub("_(bias|gain)$", "", role) for role in written))
    if not touched:
        return
    leaves = {role: leaf for role, leaf in tree.blocks[block].items() if leaf.fits}
    _check_axis_of_layers(tree, [leaf for role, leaf in leaves.items() if role in ATTENTION])
    for wide, narrow in (("query", "key"), ("out", "value")):
        if not touched & {wide, narrow} or not {wide, narrow} <= leaves.keys():
            continue
        if leaves[narrow].rule.stored.flattens("g"):
            widths = [leaves[role].axes["k"] for role in (wide, narrow)]
            if widths[0] != widths[1]:
                _check_no_gate(tree, block, leaves)
                raise InputError(
                    f"{leaves[wide].path} has heads of width {widths[0]}, "
                    f"{leaves[narrow].path} of width {widths[1]}: " + advice_on_groups(tree)
                )
    for first, second, shared in _SAME_SIZES:
        if {first, second} <= leaves.keys():
            one, other = leaves[first], leaves[second]
            if any(one.axes[axis] != other.axes[axis] for axis in shared):
                raise InputError(
                    f"{one.path} of shape {one.shape} and {other.path} of shape {other.shape} "
                    f"have different heads by their layouts {one.rule.layout!r} and "
                    f"{other.rule.layout!r}{hint_of_heads(tree, leaves.values())}"
                )


def _check_axis_of_layers(tree: Tree, kernels: Collection[Leaf]) -> None:
    """Raise InputError if nothing shows along which axis stock layers are stacked: L = D = H."""
    stacked = [leaf for leaf in kernels if leaf.rule.stored.stacked]
    if not stacked or tree.name_of_rules not in _STOCK:
        return
    if all(leaf.shape[0] == leaf.shape[1] for leaf in stacked):
        raise InputError(
            f"{stacked[0].path} of shape {stacked[0].shape} may stack layers along its first or "
            "its second axis: give rules=attention_rules(stacked=True) or "
            "rules=attention_rules(stacked=True, axis=1)"
        )


def _check_no_gate(tree: Tree, block: str, leaves: Mapping[str, Leaf]) -> None:
    """Raise InputError if query makes twice as many columns as out takes."""
    if {"query", "out"} <= leaves.keys():
        query, out = leaves["query"], leaves["out"]
        columns, rows = (leaf.axes["h"] * leaf.axes["k"] for leaf in (query, out))
        if columns == 2 * rows:
            raise InputError(
                f"{query.path} has {columns} columns, twice the {rows} that {out.path} takes: "
                "half of them may be gates, which no layout tells from queries; leave this "
                f"attention out with {rules_without(tree, f'{block}/')}"
            )


def check_described(tree: Tree, scheme: Scheme | None = None) -> None:
    """Raise InputError if the tree seems to have attention that no rule describes."""
    for block in tree.blocks if tree.found_rules else ():
        _check_no_stranger(tree, block)
    if not tree.undescribed:
        return
    path = tree.undescribed[0]
    parts = {
        *re.split("[/.]", path),
        *(re.split("[/.]", p)[-1] for p in tree.held[paths.parent(path)]),
    }
    if any(map(_SCALES.fullmatch, parts)):
        raise InputError(
            f"{path} is quantized or a scale: give weights in floating point, without scales"
        )
    advice = hint(tree)
    if not advice and (reason := why_left_out(tree, [path])):
        raise InputError(f"no rule describes {path}: {reason}")
    if not advice:
        parents = {paths.parent(paths.parent(one)) for one in tree.undescribed}
        near = [one for one in tree.paths if paths.parent(paths.parent(one)) in parents]
        call = suggested(tree, near, scheme=scheme) or "rules=(Rule(path, role, layout), …)"
        layers = {paths.parent(one) for one in tree.undescribed}
        alike = [x for x in sorted(layers) if paths.parent(x) == paths.parent(paths.parent(path))]
        advice = (
            f": give {call}; if it is no attention, leave it out with "
            f"{rules_without(tree, *(f'{layer}/' if layer else path for layer in alike))}"
        )
    others = len(tree.undescribed) - 1
    raise InputError(f"no rule describes {path} (and {others} more){advice}")


def _check_no_stranger(tree: Tree, block: str) -> None:
    """Raise InputError if a table doesn't know all leaves of an attention layer: others share its
    names, with other orders of heads or scales."""
    kernels = attention_kernels(frozenset(tree.blocks[block]))
    table = tree.name_of_rules
    if not kernels or table == "rules":
        return
    # Leaves that are known, of attention and beside it, and that others of these names have.
    shared = _BIGCODE if table == "zoo.PYTORCH_NANOGPT" else UNDIVIDED
    known = [leaf.path for leaf in tree.blocks[block].values()] + tree.paths * (table in _STOCK)
    unsure = [path for path in known if shared.search(path)]
    for path in unsure or (() if table in _STOCK else tree.strangers(block)):
        leaf = tree.blocks[block][max(kernels & {"query"} or kernels)]
        leaves = tree.blocks[block].values()
        fused = {one.index: one for one in leaves if "three" in one.rule.layout}
        others = ", ".join(other_order(one, block) for one in fused.values() or [leaf])
        inside = path in {one.path for one in leaves}
        knows = "isn't the only one" if inside else "knows no attention"
        raise InputError(
            f"{table} {knows} with {path} beside {leaf.path}, and others of its names store "
            f"heads in another order or scale: give rules={table} if {stated(leaf)}, or "
            f"rules=({others}, *{table}) if not"
        )


def of_optimizer(params: Any, names: Sequence[str]) -> dict[int, str]:
    """What the leaves of a training state belong to that aren't its parameters, by their index.

    A moment mirrors the parameters, and a schedule-free optimizer, float32 masters or a moving
    average hold a copy of them.
    """

    def is_optax(node: Any) -> bool:
        return isinstance(node, tuple) and type(node).__module__.split(".")[0] == "optax"

    found: dict[int, str] = {}
    index = 0
    for node in jax.tree.leaves(params, is_leaf=is_optax):
        size = len(jax.tree.leaves(node))
        if is_optax(node):
            found |= dict.fromkeys(range(index, index + size), f"optax's {type(node).__name__}")
        index += size
    seen = frozenset(names)
    for index, path in enumerate(names):
        top, _, rest = path.partition("/")
        if _OPTIMIZER.search(path) or _moments(path) & seen:
            found.setdefault(index, "an optimizer's state")
        elif top != "params" and f"params/{rest}" in seen:
            found.setdefault(index, f"{top}, a copy of params")
    return found


def scaled_elsewhere(names: frozenset[str]) -> dict[str, str]:
    """The scale of each kernel that has one in another module, such as Flax's WeightNorm.

    >>> scaled_elsewhere(frozenset({"a/out/kernel", "WeightNorm_0/a/out/kernel/scale"}))
    {'a/out/kernel': 'WeightNorm_0/a/out/kernel/scale'}
    """
    found: dict[str, str] = {}
    for path in names:
        *parts, last = path.split("/")
        if _SCALES.fullmatch(last):
            without = ("/".join([*parts[:at], *parts[at + 1 :]]) for at in range(len(parts)))
            found |= {kernel: path for kernel in without if kernel in names}
    return found


def _moments(path: str) -> set[str]:
    """The counts that an optimizer without its classes has beside the moments of a path."""
    moments = re.finditer(r"(?:^|/)(?:mu|nu)/", path)
    return {f"{path[: found.start()]}/count".removeprefix("/") for found in moments}
