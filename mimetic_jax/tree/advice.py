"""What to give for a tree that a table misses: rules, heads, what to leave out."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import shown
from mimetic_jax.rules import paths
from mimetic_jax.rules.layout import grouped_advice
from mimetic_jax.rules.rule import ATTENTION, ROLES, Rule, find_rule
from mimetic_jax.schemes import Scheme
from mimetic_jax.schemes.base import attention_kernels, name_of, roles_to_write
from mimetic_jax.tree.label import MLP, gates
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.tree import Tree
from mimetic_jax.zoo.suggestion import given, numbered, other_calls, suggestion

UNDIVIDED = re.compile(r"(^|[/.])(relative_attention_bias|relpos_bias|pre_mlp_layer_norm)[/.]")
"""Leaves of T5 and its kin, such as flaxformer, which don't divide logits by √K."""


def rules_without(tree: Tree, *parts: str, keep: bool = False) -> str:
    """The rules of a tree, without these leaves: see `without`."""
    return without(tree.name_of_rules, *parts, keep=keep)


def hint_of_heads(tree: Tree, leaves: Collection[Leaf]) -> str:
    """Advice for a fused kernel of grouped heads, and for stacked layers that are read as
    others: with flattened heads, kernels have as many axes as those of one layer with heads
    apart."""
    if any("three" in leaf.rule.layout for leaf in leaves):
        return f"; {grouped_advice()}"
    call = suggested(tree, [leaf.path for leaf in leaves], beside="")
    if "axis=1" in call:
        return f": layers are stacked along axis 1, not along the first; give {call}"
    if "stacked=True, flat=True" not in call:
        return ""
    return f": stacked layers with flattened heads need {call}"


def advice_on_groups(tree: Tree) -> str:
    """What to give if heads of query and of key have different widths."""
    if tree.grouped:
        return f"num_heads {tree.heads['h']} or num_kv_heads {tree.heads['g']} is another"
    return "give num_kv_heads, the number of heads of key and value"


def no_match(tree: Tree, scheme: Scheme) -> str:
    """Why a scheme finds nothing, and what to do."""
    if not tree.paths:
        return f"{name_of(scheme)} matches nothing: the tree has no leaves"
    seen = ", ".join(tree.paths[:8]) + (", …" if len(tree.paths) > 8 else "")
    message = f"{name_of(scheme)} matches nothing among the paths {seen}"
    if other_table := hint(tree, scheme):
        return message + other_table
    if roles_to_write(scheme, ATTENTION):
        if call := suggested(tree, tree.paths, scheme=scheme):
            return f"{message}: give {call}"
        if reason := why_left_out(tree, tree.paths):
            return f"{message}: {reason}"
    if call := sentence(tree, scheme, calls(tree, wanted_by(scheme), gated=scheme.gated)):
        return f"{message}: {call}"
    if reason := _gated(tree, scheme):
        return f"{message}: {reason}"
    every = sorted(scheme.writes(frozenset(ROLES)))
    if not every:
        return f"{name_of(scheme)} writes nothing in any tree: {shown(scheme)}"
    kernels = [role for role in every if not role.endswith("_bias")]
    return (
        f"{message}: no rule gives one of them the role {' or '.join(kernels or every)}; put "
        f"one in front, rules=(Rule(path, role, layout), *rules)"
    )


def _gated(tree: Tree, scheme: Scheme) -> str:
    """Why a scheme for MLPs finds none of those that rules describe, if these are gated; or ""."""
    if MLP.isdisjoint(wanted_by(scheme)):
        return ""
    described = [path for path, rule in tree.rule_of.items() if not MLP.isdisjoint(rule.roles)]
    for block, gate in gates(tree.shapes, tree.rule_of).items():
        if not any(path.startswith(block) for path in described):
            continue
        layer = paths.parent(gate)
        reason = (
            f"{layer} is the gate of an MLP, and {name_of(scheme)} leaves such MLPs as they are"
        )
        if gate in tree.rule_of:  # by the table of its model
            return reason
        if scheme.gated and (call := calls(tree, {"mlp_in", "mlp_out"}, tree.paths)):
            reason = f"{layer} is the gate of an MLP: give {given(call[:1], tree.name_of_rules)}"
        return f"{reason}; if it is none, leave it out with {rules_without(tree, f'{layer}/')}"
    return ""


def why_left_out(tree: Tree, among: Iterable[str]) -> str:
    """Why no rule describes attention that a table knows by its names."""
    for path in among:
        if re.search(r"(^|[/.])[kv]_proj_weight$", path):
            return (
                f"torch.nn.MultiheadAttention has {path} if keys or values have another width "
                "than queries; such cross-attention is left out"
            )
        tables = (tree.rules, *zoo.TABLES.values())
        if _rule_without_role(tree, path):
            return (
                f"{path} is left out by its name or by what is beside it, as pooling, or as "
                "attention that is no softmax between tokens; to write it, give its own rules"
            )
        if any(rule.excludes(path) for table in tables for rule in table):
            return (
                f"{path} is left out by its name, as cross-attention or a part beside another "
                "model; to write it, give it alone, without what its path starts with"
            )
    return ""


def suggested(
    tree: Tree, among: Iterable[str], beside: str | None = None, scheme: Scheme | None = None
) -> str:
    """What to give for the attention of some paths, beside the rules of the rest; with what else
    of the tree schemes write that no rule describes."""
    if beside is None:
        fitting = (
            frozenset(role for role, leaf in leaves.items() if leaf.fits)
            for leaves in tree.blocks.values()
        )
        known = any(map(attention_kernels, fitting)) or not tree.asked.isdisjoint(_roles(tree))
        beside = tree.name_of_rules if known else ""
    shapes = dict(tree.shapes)
    attention = [(path, shapes[path]) for path in among if not _rule_without_role(tree, path)]
    undivided = any(map(UNDIVIDED.search, tree.paths))
    others = calls(tree, wanted_by(scheme) | tree.asked, gated=scheme.gated) if scheme else []
    return suggestion(attention, beside, undivided=undivided, others=others)


def sentence(tree: Tree, scheme: Scheme, own: Sequence[str]) -> str:
    """What to give, in words, by calls for what a scheme lacks and for what other schemes do; "" if
    it has none of its own."""
    if not own:
        return ""
    wanted = wanted_by(scheme) | tree.asked
    call = ""
    if tree.undescribed and wanted.intersection(ATTENTION):
        call = suggested(tree, tree.paths, scheme=scheme)
    every = dict.fromkeys((*own, *calls(tree, wanted, gated=scheme.gated)))
    call = call or given([*every], tree.name_of_rules)
    if "(u v c)" in call:
        call += ", if the numbers of a patch are its rows, columns and channels in this order"
    if "patch" not in wanted:
        return f"give {call}"
    return (
        "beside covariance=weights.patch_covariance(images, patch), of images as the model gets "
        f"them, normalized, give {call}"
    )


def calls(
    tree: Tree, wanted: Iterable[str], among: Collection[str] | None = None, *, gated: bool = True
) -> list[str]:
    """The calls for what isn't attention: of wanted roles that no leaf has, or for leaves among
    these paths. Without those of gated MLPs, if a scheme leaves these as they are."""
    every = tree.shapes
    stacks = set[int]()
    widths = {size for path, shape in every if path in tree.undescribed for size in shape}
    for leaves in tree.blocks.values():
        for leaf in leaves.values():
            if leaf.role in ATTENTION and leaf.fits:
                widths.add(leaf.axes["d"])
                stacks.add(leaf.layers or 0)
    wanted = frozenset(wanted)
    if among is None:
        wanted -= _roles(tree)
        among = {path for path, _ in every if path not in tree.rule_of}
    unknown = [
        (path, shape)
        for path, shape in every
        # Experts are stacked, too, in layers that aren't.
        if path in among
        and (len(shape) != 3 or shape[0] == 1 or not stacks or stacks.intersection(shape))
    ]
    return other_calls(unknown, wanted, every=every, widths=widths, gated=gated)


def wanted_by(scheme: Scheme) -> frozenset[str]:
    """The roles that a scheme writes if they are there."""
    return scheme.writes(frozenset(ROLES))


def asked_by(schemes: Iterable[Scheme]) -> frozenset[str]:
    """The roles that any of some schemes writes."""
    return frozenset().union(*map(wanted_by, schemes))


def _roles(tree: Tree) -> frozenset[str]:
    """The roles of a tree's leaves."""
    return frozenset(itertools.chain(*tree.blocks.values()))


@contextlib.contextmanager
def naming_leaves(tree: Tree) -> Iterator[None]:
    """Name leaves in an error that asks for their rule, if it is clear which."""
    try:
        yield
    except InputError as error:
        message = str(error)
        for asked, roles in (
            ("Rule(path, 'embedding', 't d')", {"embedding", "unembedding"}),
            ("mlp_rules(first=…, second=…)", {"mlp_in", "mlp_out"}),
        ):
            if asked in message and (ready := calls(tree, roles, tree.paths)):
                message = message.replace(asked, ready[0])
        raise InputError(message) from error


def _rule_without_role(tree: Tree, path: str) -> bool:
    """Whether a table says that a leaf is no attention, or none of the model's own."""
    tables = (tree.rules, zoo.FLAX, *zoo.TABLES.values())
    matches = (find_rule(path, rules, tree.indices) for rules in tables)
    return any(match is not None and not match[0].roles for match in matches)


def hint(tree: Tree, scheme: Scheme | None = None) -> str:
    """Advice to use another table of the zoo, by which the scheme finds something, or rules."""
    name = zoo.detect(tree.params)
    if name is None or tuple(tree.rules) == zoo.TABLES[name]:
        return ""
    if scheme is not None and not _finds(tree, scheme, zoo.TABLES[name]):
        return ""
    return f": it looks like zoo.{name}, give rules=zoo.{name}"


def _finds(tree: Tree, scheme: Scheme, rules: Sequence[Rule]) -> bool:
    """Whether the scheme would write anything by other rules."""
    try:
        other = Tree(tree.params, rules, tree.heads["h"], tree.heads["g"])
        return any(roles_to_write(scheme, roles) for roles in other.blocks.values())
    except InputError:
        return False


def without(rules: str, *parts: str, keep: bool = False) -> str:
    """Rules that leave out these leaves, or all below a path that ends in a slash.

    They are for all layers: numbers stand for any, but for those in the last name if kept.

    >>> without("zoo.PYTORCH", "model.decoder/")
    'rules=(Rule(r"^model/decoder/.*", ()), *zoo.PYTORCH)'
    """
    left = []
    for part in parts:
        last = re.split("[/.]", part.removesuffix("/"))[-1] + "/" if keep else ""
        name = numbered(part.removesuffix(last)) + last
        left.append(f'Rule(r"^{name}{".*" * name.endswith("/")}", ())')
    return f"rules=({', '.join(dict.fromkeys(left))}, *{rules})"


def stated(leaf: Leaf) -> str:
    """What the rule of a query says of the order of heads, or of the scale of logits."""
    if "three" in leaf.rule.layout:
        return f"{leaf.path} is {leaf.rule.layout!r}"
    return f"its logits are {'not ' if leaf.rule.undivided else ''}divided by √K"


def other_order(leaf: Leaf, block: str) -> str:
    """The rule by which a leaf holds the heads in the other order, or a query the other scale."""
    rule, name = leaf.rule, leaf.path.removeprefix(block).lstrip("/.").replace(".", "/")
    role = rule.role if isinstance(rule.role, tuple) else leaf.role
    orders = ("three h", "h three")
    layout = rule.layout
    if "three" in layout:
        here, there = orders if orders[0] in layout else orders[::-1]
        layout = layout.replace(here, there)
    scale = ", undivided=True" * ("three" not in layout and not rule.undivided)
    return f'Rule("{name}", {role!r}, "{layout}", within=r"^{numbered(block)}$"{scale})'


def part_of(path: str, other: str) -> str:
    """The start of a path up to the first name that another one doesn't have, and a slash."""
    names, others = re.split("[/.]", path), re.split("[/.]", other)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(names, others, strict=False))
    return "/".join(names[: len(list(same)) + 1]) + "/"
