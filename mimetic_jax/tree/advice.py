"""What to give for a tree that a table misses: rules, heads, what to leave out."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import shown
from mimetic_jax.rules.layout import grouped_advice
from mimetic_jax.rules.rule import ATTENTION, ROLES, Rule, find_rule
from mimetic_jax.schemes import Scheme
from mimetic_jax.schemes.base import attention_kernels, name_of, roles_to_write
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.zoo.suggestion import (
    TOKENS,
    given,
    mlp_suggestion,
    numbered,
    other_calls,
    patch_suggestion,
    position_suggestion,
    suggestion,
)

if TYPE_CHECKING:
    from mimetic_jax.tree.tree import Tree

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
    if found := hint(tree, scheme):
        return message + found
    if roles_to_write(scheme, ATTENTION):
        if call := suggested(tree, tree.paths, scheme=scheme):
            return f"{message}: give {call}"
        if reason := why_left_out(tree, tree.paths):
            return f"{message}: {reason}"
    shapes = [(p, np.shape(leaf)) for p, leaf in zip(tree.paths, tree.leaves, strict=True)]
    every = sorted(scheme.writes(frozenset(ROLES)))
    for role, found_in in (
        ("mlp_in", mlp_suggestion),
        ("position", position_suggestion),
        ("patch", patch_suggestion),
    ):
        if role in every and (call := found_in(shapes, tree.name_of_rules)):
            return f"{message}: give {call}"
    if other_calls(shapes, TOKENS.intersection(every)):
        return f"{message}: give {given(other_calls(shapes, TOKENS), tree.name_of_rules)}"
    if not every:
        return f"{name_of(scheme)} writes nothing in any tree: {shown(scheme)}"
    kernels = [role for role in every if not role.endswith("_bias")]
    return (
        f"{message}: no rule gives one of them the role {' or '.join(kernels or every)}; put "
        f"one in front, rules=(Rule(path, role, layout), *rules)"
    )


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
    tree: Tree,
    among: Iterable[str],
    beside: str | None = None,
    scheme: Scheme | None = None,
) -> str:
    """What to give for the attention of some paths, beside the rules of the rest; with what else
    of the tree a scheme writes that no rule describes."""
    shapes = dict(zip(tree.paths, map(np.shape, tree.leaves), strict=True))
    if beside is None:
        fitting = (
            frozenset(role for role, leaf in leaves.items() if leaf.fits)
            for leaves in tree.blocks.values()
        )
        beside = tree.name_of_rules if any(map(attention_kernels, fitting)) else ""
    among = [path for path in among if not _rule_without_role(tree, path)]
    undivided = any(map(UNDIVIDED.search, tree.paths))
    described = set(itertools.chain(*tree.blocks.values()))
    wanted = scheme.writes(frozenset(ROLES)) - described if scheme else ()
    others = other_calls([*shapes.items()], wanted)
    attention = [(path, shapes[path]) for path in among]
    return suggestion(attention, beside, undivided=undivided, others=others)


@contextlib.contextmanager
def naming_tokens(tree: Tree) -> Iterator[None]:
    """Name the embedding of tokens in an error that asks for its rule, if it is clear which."""
    try:
        yield
    except InputError as error:
        shapes = [(p, np.shape(leaf)) for p, leaf in zip(tree.paths, tree.leaves, strict=True)]
        calls = other_calls(shapes, {"embedding", "unembedding"})
        asked = "Rule(path, 'embedding', 't d')"
        raise InputError(str(error).replace(asked, calls[0] if calls else asked)) from error


def _rule_without_role(tree: Tree, path: str) -> bool:
    """Whether a table says that a leaf is no attention, or none of the model's own."""
    tables = (tree.rules, zoo.FLAX, *zoo.TABLES.values())
    found = (find_rule(path, rules, tree.beside) for rules in tables)
    return any(one is not None and not one[0].roles for one in found)


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
        blocks = tree.by_rules(rules).blocks
        return any(roles_to_write(scheme, roles) for roles in blocks.values())
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
    return f"rules=({', '.join(left)}, *{rules})"


def stated(leaf: Leaf) -> str:
    """What the rule of a query says of the order of heads, or of the scale of logits."""
    if "three" in leaf.rule.layout:
        return f"{leaf.path} is {leaf.rule.layout!r}"
    return f"its logits are {'not ' if leaf.rule.undivided else ''}divided by √K"


def other_order(leaf: Leaf, block: str) -> str:
    """The rule by which a leaf holds the heads in the other order, or a query the other scale."""
    rule, name = leaf.rule, re.sub("[/.]", "/", leaf.path.removeprefix(block).lstrip("/."))
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
    names, others = (re.split("[/.]", one) for one in (path, other))
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(names, others, strict=False))
    return "/".join(names[: len(list(same)) + 1]) + "/"
