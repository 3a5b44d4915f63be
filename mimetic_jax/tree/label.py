"""What rules say of the leaves of a tree: roles go by paths and are never guessed from shapes."""

from __future__ import annotations

import re
from collections import ChainMap, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import names, paths
from mimetic_jax.rules.rule import Rule, find_rule
from mimetic_jax.tree.leaf import Leaf

Blocks: TypeAlias = dict[str, dict[str, Leaf]]
"""Leaves by the path of what they are in, and by role."""
Shapes: TypeAlias = Sequence[tuple[str, tuple[int, ...]]]
"""The leaves of a tree in their order: path and shape."""

# A third kernel of an MLP, beside the two that a rule describes. Schemes for MLPs are about two
# kernels with a function between them, so a gated MLP stays as it is, and `check` alone reads it.
_GATE = re.compile(r"(^|[/.])(up|gate)(_proj)?(?=[/.])")
_MLP = frozenset({"mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias"})


class Labels(NamedTuple):
    """The described leaves.

    Attributes:
        rule_of: the rule that describes a leaf, by path.
        blocks: leaves that schemes may write, by the path of their block.
        read_only: those that only `check` reads, likewise.
        norms: gains and scales, by the place of their norm with "/" between names.
        undescribed: leaves without a rule that seem to be of attention.
    """

    rule_of: dict[str, Rule]
    blocks: Blocks
    read_only: Blocks
    norms: Blocks
    undescribed: list[str]


def label(
    shapes: Shapes,
    rules: Sequence[Rule],
    heads: Mapping[str, int | None],
    of_optimizer: Mapping[int, str],
) -> Labels:
    """Each leaf by the first rule that describes it, with the numbers of heads, "h" and "g".

    A leaf `of_optimizer`, which has what it belongs to by index, must have no role.
    """
    ranks = {path: len(shape) for path, shape in shapes}
    described = {
        path: match
        for path, rank in ranks.items()
        if (match := find_rule(path, rules, ranks, rank))
    }
    rule_of = {path: rule for path, (rule, _) in described.items()}
    others = _without_rule(ranks, rule_of)
    undescribed = names.attention(others.items(), ranks.keys() - others.keys())
    gated = _gated_blocks(ranks, rule_of)
    members: dict[str, list[tuple[int, Rule]]] = defaultdict(list)
    for index, (path, _) in enumerate(shapes):
        rule, block = described.get(path, (None, ""))
        if not rule or not rule.roles:
            continue
        if block in gated and _MLP.issuperset(rule.roles) and not rule.read_only:
            continue
        if index in of_optimizer:
            raise InputError(
                f"{path} belongs to {of_optimizer[index]}: give the parameters alone, such as "
                "state.params, and make the rest of the state from the new ones, as "
                "optimizer.init does, since a copy of the old ones would bring them back"
            )
        members[block].append((index, rule))
    labels = Labels(rule_of, defaultdict(dict), defaultdict(dict), defaultdict(dict), undescribed)
    for block, leaves in members.items():
        for leaf in _sized(shapes, leaves, heads):
            _place(labels, leaf, block)
    return labels


def _sized(
    shapes: Shapes, members: Sequence[tuple[int, Rule]], heads: Mapping[str, int | None]
) -> list[Leaf]:
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
    shapes: Shapes,
    index: int,
    rule: Rule,
    heads: Mapping[str, int | None],
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


def _place(labels: Labels, leaf: Leaf, block: str) -> None:
    """Put a leaf into its block, or a norm beside the block that it belongs to."""
    blocks = labels.read_only if leaf.rule.read_only else labels.blocks
    roles = labels.norms[paths.above(block)[0]] if leaf.rule.of_norm else blocks[block]
    rival = roles.get(leaf.role)
    if rival and leaf.role != "post_norm":
        raise InputError(f"{rival.path} and {leaf.path} both claim role {leaf.role}")
    roles[leaf.role] = leaf


def _without_rule(ranks: Mapping[str, int], rule_of: Mapping[str, Rule]) -> dict[str, int]:
    """The leaves that no rule describes and that may be of attention, with their axes' number."""
    # Mamba's projection of its input has a name that is common in attention.
    mambas = {paths.parent(path) for path in ranks if re.search(r"(^|[/.])A_log$", path)}
    return {
        path: rank
        for path, rank in ranks.items()
        if path not in rule_of
        and not _GATE.search(path)
        and paths.parent(paths.parent(path)) not in mambas
    }


def _gated_blocks(leaves: Iterable[str], rule_of: Mapping[str, Rule]) -> set[str]:
    """The blocks with a third kernel of an MLP.

    A layer of such a name whose kernel has a rule is one of the two, whatever else it holds.
    """
    written = {path for path, rule in rule_of.items() if not rule.read_only}
    layers = {paths.parent(path) for path in written if rule_of[path].roles}
    gates = [gate for path in leaves if path not in written and (gate := _GATE.search(path))]
    return {
        gate.string[: gate.start()] for gate in gates if gate.string[: gate.end()] not in layers
    }
