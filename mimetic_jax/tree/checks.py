"""Why a tree is refused: leaves that disagree, belong to something else, or have a scale."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import names, paths
from mimetic_jax.rules.layout import grouped_advice, own_rules
from mimetic_jax.rules.rule import ATTENTION, FIRST_LAYER
from mimetic_jax.schemes import Scheme
from mimetic_jax.schemes.base import attention_kernels
from mimetic_jax.tree import advice
from mimetic_jax.tree.around import vectors
from mimetic_jax.tree.label import SCALES, is_scale
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.tree import Matches, Tree
from mimetic_jax.zoo.suggestion import given, numbered

_STOCK = ("zoo.FLAX", "zoo.FLAX_STACKED")
# GPTBigCode, whose c_attn has a bias, has the names of a nanoGPT with biases.
_BIGCODE = re.compile(r"(^|[/.])attn[/.]c_attn[/.]bias$")

# Modules that Flax numbers; another numbered block with attention in it is a layer.
_ATTENTIVE = re.compile(r"(?i)(att|mha|multi_?head|cross)[^/.]*$")

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


def check_leaves(tree: Tree, scheme: Scheme, matches: Matches) -> None:
    """Raise InputError if a leaf that is written doesn't fit its rule or those beside it."""
    for block, leaves in matches:
        # First, as its error says what is wrong with layers that are read as a width.
        check_heads(tree, block, frozenset(leaf.role for leaf in leaves))
        for leaf in leaves:
            check_fits(tree, block, leaf)
            tree.check_writable(block, leaf)
            _check_partner(tree, block, leaf)


def check_all_attention(tree: Tree, scheme: Scheme, matches: Matches) -> None:
    """Raise InputError if no rule describes attention, and the scheme writes it or nothing."""
    wanted = advice.wanted_by(scheme)
    if wanted.intersection(ATTENTION) or not (matches or wanted <= {"position", *FIRST_LAYER}):
        check_described(tree, scheme)


def check_any(tree: Tree, scheme: Scheme, matches: Matches) -> None:
    """Raise InputError if there is nothing to write."""
    if not matches:
        raise InputError(advice.no_match(tree, scheme))


def check_roles(tree: Tree, scheme: Scheme, matches: Matches) -> None:
    """Raise InputError if the tree lacks a role that the scheme needs, or has a wrong one."""
    written = frozenset(leaf.role for _, leaves in matches for leaf in leaves)
    with advice.naming_leaves(tree):
        scheme.check_tree(frozenset(itertools.chain(*tree.blocks.values())), written)


def check_stacked(tree: Tree, scheme: object, matches: Matches) -> None:
    """Raise InputError if a layer stacks some of its leaves, here or among others of its kind."""
    kinds = {paths.family(block) for block, _ in matches}
    for block, leaves in tree.blocks.items():
        stacks = {leaf.layers for leaf in leaves.values() if leaf.fits}
        if len(stacks) > 1 and paths.family(block) in kinds:
            hint = advice.hint_of_heads(tree, leaves.values())
            raise InputError(f"{block}: some of its leaves stack layers and some don't{hint}")


def check_fits(tree: Tree, block: str, leaf: Leaf) -> None:
    """Raise InputError if the shape of a leaf that is used doesn't fit, with what would."""
    if own_rules() in leaf.problem:
        inside = f"{block}/" if block else ""
        near = [path for path in tree.paths if path.replace(".", "/").startswith(inside)]
        call = advice.suggested(tree, near) if leaf.role in ATTENTION else ""
        if not call and (others := advice.calls(tree, [leaf.role], near)):
            call = given(others, tree.name_of_rules)
        if call:
            raise InputError(leaf.problem.replace(own_rules(), f"give {call}"))
    if "three" in leaf.rule.layout and grouped_advice() in leaf.problem:
        near = [path for path in tree.paths if paths.parent(path).startswith(block)]
        if "grouped=True" in (call := advice.suggested(tree, near, beside="")):
            raise InputError(leaf.problem.replace(grouped_advice(), f"give {call}"))
    leaf.check()


def check_one_per_layer(tree: Tree, scheme: Scheme, matches: Matches) -> None:
    """Raise InputError for several attentions of one layer, of which one may be cross-attention.

    Flax numbers them, other libraries call them attn1 and attn2, or one of them by a name of its
    own, such as encoder_attention; each may be in a block of its own, of which one has the MLP.
    """
    alike: dict[str, list[str]] = defaultdict(list)
    inside: dict[str, list[str]] = defaultdict(list)
    for block, leaves in matches if tree.found_rules else ():
        attention = not {leaf.role for leaf in leaves}.isdisjoint(ATTENTION)
        if attention and (_ATTENTIVE.search(block) or not block[-1:].isdecimal()):
            layer, *around = paths.numbered_above(block) or [paths.parent(block)]
            alike[layer].append(block)
            for place in around:
                inside[place].append(block)
    described = tree.with_read_only().blocks.items() if inside else ()
    mlps = [block for block, roles in described if {"mlp_in", "mlp_out"} & roles.keys()]
    having = Counter(place for block in mlps for place in paths.above(block))
    # Stages have an MLP for each attention.
    alike |= {
        place: blocks
        for place, blocks in inside.items()
        if len(blocks) in (2, 3) and having[place] == 1
    }
    several = {layer: blocks for layer, blocks in alike.items() if _undecided(layer, blocks)}
    layers = Counter(map(paths.family, several))
    for layer, blocks in several.items():
        first, second = sorted(blocks[:2], key=lambda block: "self" not in block.lower())
        if layers[paths.family(layer)] > 1 or tree.layers(first) != [None] or paths.is_layer(layer):
            without = advice.rules_without(tree, f"{second}/", keep=True)
            raise InputError(
                f"{first} and {second} are in one layer, and their names don't tell "
                "self-attention from cross-attention: give "
                f"rules={tree.name_of_rules} if all of them are self-attention, or "
                f"leave one out with {without}"
            )


def check_alike_per_layer(tree: Tree, scheme: Scheme, matches: Matches) -> None:
    """Raise InputError for MLPs of one layer with other hidden layers: squeeze-excite, an adapter
    or a mixer of tokens may have the names of an MLP's layers."""
    found: dict[str, list[Leaf]] = defaultdict(list)
    for block, leaves in matches if tree.found_rules else ():
        for layer in paths.numbered_above(block)[:1]:
            found[layer] += [x for x in leaves if x.role == "mlp_in" and x.fits]
    for leaves in found.values():
        hidden = {leaf.axes["f"]: leaf for leaf in leaves}
        if len(hidden) > 1:
            large, small = (hidden[size(hidden)] for size in (max, min))
            module = paths.parent(paths.parent(small.path))
            raise InputError(
                f"{large.path} and {small.path} are in one layer, with hidden layers of "
                f"{large.axes['f']} and {small.axes['f']}: one of them may mix tokens, or be no "
                f"MLP of the layer: give rules={tree.name_of_rules} if both are, or leave one out "
                f"with {advice.rules_without(tree, f'{module}/')}"
            )


def _undecided(layer: str, blocks: Sequence[str]) -> bool:
    """Whether one of several attentions may be cross-attention: not if each has a name of its own
    that says "self"."""
    names_of_own = {re.sub(r"_?\d+$", "", block) for block in blocks}
    all_self = all("self" in block[len(layer) :].lower() for block in blocks)
    return len(blocks) > 1 and not (all_self and len(names_of_own) == len(blocks))


def _check_partner(tree: Tree, block: str, leaf: Leaf) -> None:
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
                f"leave them out with {advice.rules_without(tree, leaf.path, other.path)}"
            )
        check_order(tree, block)


def check_order(tree: Tree, block: str) -> None:
    """Raise InputError if the layers of an MLP aren't as wide as the attention beside it.

    Those that Linen has numbered may be in another order: in nn.Dense(D)(nn.gelu(nn.Dense(F)(x)))
    the last layer is made first, and is Dense_0. Others may be an adapter, or mix tokens.
    """
    first, second = (tree.blocks[block].get(role) for role in ("mlp_in", "mlp_out"))
    if not (first and second and first.fits and second.fits and zoo.has_rule(first.rule)):
        return
    if second.axes != first.axes:
        return
    (d, f), width = (first.axes[axis] for axis in "df"), _width_beside(tree, block)
    by_linen = "Dense_" in first.rule.path
    if width == d or not (by_linen or width):
        return
    shapes = f"{first.path} of shape {first.shape} and {second.path} of shape {second.shape}"
    if width not in (None, f) or not by_linen:
        raise InputError(
            f"{shapes} aren't as wide as the attention beside them, {width}: leave them out with "
            f"{advice.rules_without(tree, first.path, second.path)}"
        )
    within = f'within=r"^{numbered(block)}$"'
    swapped, kept = (
        given([f'mlp_rules(first="{one}", second="{other}", {within})'], tree.name_of_rules)
        for one, other in (("Dense_1", "Dense_0"), ("Dense_0", "Dense_1"))
    )
    made = "as Linen numbers those of nn.Dense(D)(nn.gelu(nn.Dense(F)(x)))"
    if width == f:
        raise InputError(
            f"{shapes} are the last and the first layer of an MLP, {made}, since the attention "
            f"beside them has width {width}: give {swapped}"
        )
    if d > f:
        raise InputError(
            f"{shapes} may be the last and the first layer of an MLP, {made}: give {swapped} if "
            f"they are, and {kept} if its hidden layer is narrower than its input"
        )


def _width_beside(tree: Tree, block: str) -> int | None:
    """The width of the attention in the layer of an MLP's block; None if none or several are."""
    for place in paths.meeting(block, "mlp"):
        widths = {
            leaf.axes["d"]
            for other, leaves in tree.blocks.items()
            if place in paths.meeting(other, "attention")
            for role, leaf in leaves.items()
            if role in ATTENTION and leaf.fits
        }
        if widths:
            return widths.pop() if len(widths) == 1 else None
    return None


def check_exact(tree: Tree, scheme: Scheme, matches: Matches) -> None:
    """Raise InputError if no rule describes what logits depend on, for a scheme that is exact."""
    for block, _ in matches if scheme.exact else ():
        if "query" in tree.blocks[block]:
            check_columns(tree, block, tree.layers(block)[0])


def check_columns(tree: Tree, block: str, layer: int | None) -> None:
    """Raise InputError if attention has an array over a head's columns that no rule describes."""
    dim = next(leaf.sizes["d"] for leaf in tree.blocks[block].values() if "d" in leaf.sizes)
    for path in vectors(tree, block, layer, 0):
        # Those of the width are norms of the layer, whose gain is taken for 1.
        if dim not in tree.shapes[tree.indices[path]][1]:
            raise InputError(
                f"no rule describes {path}, on which logits depend: if it is the gain of a norm "
                "over a head's columns, Rule(path, 'query_gain', 'k') or 'key_gain'"
            )


def check_given_heads(tree: Tree, scheme: object, matches: Matches) -> None:
    """Raise InputError for a `num_heads` that no attention has, if all store their heads apart."""
    kernels = [x for _, leaves in matches for x in leaves if x.role in ATTENTION and x.fits]
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


def check_one_width(tree: Tree, scheme: object, matches: Matches) -> None:
    """Raise InputError if one `num_heads` would divide attention of several widths."""
    divided = []
    for block, leaves in matches:
        kernels = [leaf for leaf in leaves if leaf.role in ATTENTION and leaf.fits]
        if kernels and kernels[-1].rule.heads is None:
            leaf = kernels[-1]  # query or value, if these are written
            flat = leaf.rule.stored.flattens("h") or leaf.rule.stored.flattens("g")
            if flat and "relative_bias" not in tree.blocks[block]:
                gain = tree.blocks[block].get("query_gain")  # as wide as a head
                divided.append((leaf, gain is not None and gain.fits))
    for leaf, sure in divided:
        first, first_sure = divided[0]
        without = advice.part_of(leaf.path, first.path)
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
            f"{advice.rules_without(tree, without, keep=True)}, or give a rule for each with its "
            "own heads=…"
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
                    f"{leaves[narrow].path} of width {widths[1]}: " + advice.advice_on_groups(tree)
                )
    for first, second, shared in _SAME_SIZES:
        if {first, second} <= leaves.keys():
            leaf, other = leaves[first], leaves[second]
            if any(leaf.axes[axis] != other.axes[axis] for axis in shared):
                raise InputError(
                    f"{leaf.path} of shape {leaf.shape} and {other.path} of shape {other.shape} "
                    f"have different heads by their layouts {leaf.rule.layout!r} and "
                    f"{other.rule.layout!r}{advice.hint_of_heads(tree, leaves.values())}"
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
                f"attention out with {advice.rules_without(tree, f'{block}/')}"
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
    if any(map(SCALES.fullmatch, parts)):
        raise InputError(
            f"{path} is quantized or a scale: give weights in floating point, without scales"
        )
    hint = advice.hint(tree)
    if not hint and (reason := advice.why_left_out(tree, [path])):
        raise InputError(f"no rule describes {path}: {reason}")
    if not hint:
        parents = {paths.parent(paths.parent(name)) for name in tree.undescribed}
        near = [name for name in tree.paths if paths.parent(paths.parent(name)) in parents]
        call = advice.suggested(tree, near, scheme=scheme) or "rules=(Rule(path, role, layout), …)"
        layers = {paths.parent(name) for name in tree.undescribed}
        place = paths.parent(paths.parent(path))
        alike = [layer for layer in sorted(layers) if paths.parent(layer) == place]
        hint = (
            f": give {call}; if it is no attention, leave it out with "
            f"{advice.rules_without(tree, *(f'{layer}/' if layer else path for layer in alike))}"
        )
    others = len(tree.undescribed) - 1
    raise InputError(f"no rule describes {path} (and {others} more){hint}")


def _check_no_stranger(tree: Tree, block: str) -> None:
    """Raise InputError if a table doesn't know all leaves of an attention layer: others share its
    names, with other orders of heads or scales."""
    kernels = attention_kernels(frozenset(tree.blocks[block]))
    table = tree.name_of_rules
    if not kernels or table == "rules":
        return
    # Leaves that are known, of attention and beside it, and that others of these names have.
    shared = _BIGCODE if table == "zoo.PYTORCH_NANOGPT" else advice.UNDIVIDED
    described = [leaf.path for leaf in tree.blocks[block].values()] + tree.paths * (table in _STOCK)
    unsure = [path for path in described if shared.search(path)]
    for path in unsure or (() if table in _STOCK else strangers(tree, block)):
        leaf = tree.blocks[block][max(kernels & {"query"} or kernels)]
        leaves = tree.blocks[block].values()
        fused = {kernel.index: kernel for kernel in leaves if "three" in kernel.rule.layout}
        others = ", ".join(advice.other_order(kernel, block) for kernel in fused.values() or [leaf])
        inside = path in {known.path for known in leaves}
        knows = "isn't the only one" if inside else "knows no attention"
        raise InputError(
            f"{table} {knows} with {path} beside {leaf.path}, and others of its names store "
            f"heads in another order or scale: give rules={table} if {advice.stated(leaf)}, or "
            f"rules=({others}, *{table}) if not"
        )


def strangers(tree: Tree, block: str) -> list[str]:
    """Leaves in the module of a block's attention that no rule knows, nor any common name."""
    kernels = [
        re.split("[/.]", leaf.path)
        for role, leaf in tree.blocks[block].items()
        if role in ATTENTION
    ]
    # The leaf of a layer, such as q_proj/weight, or its kernel itself.
    parents = [path[: -2 if path[-1] in ("kernel", "weight", "w") else -1] for path in kernels]
    same = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*parents, strict=False))
    inside = "".join(f"{parts[0]}/" for parts in same)
    names_inside = {
        path: path.replace(".", "/").removeprefix(inside)
        for path in tree.paths
        if path.replace(".", "/").startswith(inside) and path not in tree.rule_of
    }
    if not inside:  # the tree has no name for the module
        return []
    return [
        path
        for path, name in names_inside.items()
        # Scales of a kernel have an error of their own.
        if not names.BESIDE.fullmatch(name) and not is_scale(name)
    ]
