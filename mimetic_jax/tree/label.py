"""A parameter tree as plain data: each leaf by the first rule that describes its path.

Roles go by paths, and are never guessed from shapes.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import shown
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import Rule, find_rule
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.state import of_optimizer
from mimetic_jax.tree.tree import Tree
from mimetic_jax.weights.checks import counts
from mimetic_jax.zoo.family import Family

_Shapes: TypeAlias = Sequence[tuple[str, tuple[int, ...]]]
_Heads: TypeAlias = Mapping[str, int | None]


def label(
    params: Any,
    rules: Sequence[Rule] | Family | None = None,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
) -> Tree:
    """Describe a tree by rules, or by those of the family that fits it.

    Args:
        params: a parameter tree, or one of shapes.
        rules: those of the tree; a family knows the other leaves, too. Defaults to the family that
            fits the tree.
        num_heads: H, if kernels store heads flattened.
        num_kv_heads: G, likewise; H by default.

    Raises:
        InputError: if it isn't a tree of parameters, if two leaves of a block have one role, or if
            the rules aren't rules.
    """
    named, treedef = paths.flatten(params)
    every, leaves = [path for path, _ in named], [leaf for _, leaf in named]
    if not all(every):
        raise InputError(
            f"{shown(params)} is not a tree of parameters: pass a dictionary of arrays or "
            "another pytree, such as model.init(key, x)['params']"
        )
    shapes = tuple((path, np.shape(leaf)) for path, leaf in named)
    given_rules = zoo.family_of(params, shapes) if rules is None else rules
    family = given_rules if isinstance(given_rules, Family) else None
    rules = given_rules.rules if isinstance(given_rules, Family) else given_rules
    if not isinstance(rules, Sequence) or not all(isinstance(rule, Rule) for rule in rules):
        raise InputError(f"rules {shown(rules)} are not a sequence of Rule")
    given = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    counts(**{name: count for name, count in given.items() if count is not None})
    heads = {"h": num_heads, "g": num_kv_heads or num_heads}
    ranks = {path: len(shape) for path, shape in shapes}
    described = {
        path: match
        for path, rank in ranks.items()
        if (match := find_rule(path, rules, ranks, rank))
    }
    members: dict[str, list[tuple[int, Rule]]] = defaultdict(list)
    owners = of_optimizer(params, every)
    for index, path in enumerate(every):
        rule, block = described.get(path, (None, ""))
        if not rule or not rule.roles:
            continue
        if index in owners:
            raise InputError(
                f"{path} belongs to {owners[index]}: pass the parameters alone, such as "
                "state.params. Make the rest of the state from the new ones, as optimizer.init "
                "does, since a copy of the old ones would bring them back"
            )
        members[block].append((index, rule))
    blocks, read_only, norms = (defaultdict[str, dict[str, Leaf]](dict) for _ in range(3))
    for block, rules_of in members.items():
        for leaf in _sized(shapes, rules_of, heads):
            place = read_only if leaf.rule.read_only else blocks
            # A norm is found from the place of what it stands before or after.
            at, place = (paths.above(block)[0], norms) if leaf.rule.of_norm else (block, place)
            rival = place[at].setdefault(leaf.role, leaf)
            if rival is not leaf and leaf.role != "post_norm":
                raise InputError(f"{rival.path} and {leaf.path} both claim role {leaf.role}")
    return Tree(
        treedef=treedef,
        paths=every,
        leaves=leaves,
        rules=rules,
        family=family,
        heads=heads,
        grouped=num_kv_heads is not None,
        rule_of={path: rule for path, (rule, _) in described.items()},
        blocks=blocks,
        read_only=read_only,
        norms=norms,
    )


def _sized(shapes: _Shapes, members: Sequence[tuple[int, Rule]], heads: _Heads) -> list[Leaf]:
    """The leaves of a block, once for each role that they hold."""
    for index, rule in members:
        if "relative_bias" in rule.roles:  # the stages of a Swin have other numbers of heads
            table, *_ = _roles_of(shapes, index, rule, heads)
            heads = dict.fromkeys("hg", table.axes["h"]) if table.fits else heads
    single = [member for member in members if not member[1].stored.parts]
    joined = [member for member in members if member[1].stored.parts]
    leaves = [leaf for member in single for leaf in _roles_of(shapes, *member, heads)]
    sizes = ChainMap(*(leaf.axes for leaf in leaves if leaf.fits))
    leaves += [leaf for member in joined for leaf in _roles_of(shapes, *member, heads, sizes)]
    widths = {f"{leaf.role}_gain": leaf.axes for leaf in leaves if leaf.fits}
    return [leaf.as_wide_as(widths.get(leaf.role, {}).get("k")) for leaf in leaves]


def _roles_of(
    shapes: _Shapes,
    index: int,
    rule: Rule,
    heads: _Heads,
    beside: Mapping[str, int] | None = None,
) -> list[Leaf]:
    """A leaf as each of its roles, by numbers of heads and the sizes of leaves beside it."""
    path, shape = shapes[index]
    sizes, problem = {}, ""
    try:
        heads = {axis: rule.heads or count for axis, count in heads.items()}
        sizes = rule.stored.sizes(path, shape, heads, beside or {})
    except InputError as error:  # fine for a Dense that only shares a name with attention
        problem = str(error)
    return [Leaf(index, path, role, rule, shape, sizes, problem) for role in rule.roles]
