"""What rules say of the leaves of a tree: roles go by paths and are never guessed from shapes."""

from __future__ import annotations

import re
from collections import ChainMap, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax

from mimetic_jax import zoo
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
MLP = frozenset({"mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias"})

_OPTIMIZER = re.compile(r"(^|/)opt(imizer)?_states?/")

SCALES = re.compile(
    r"(?i)(weight_|kernel_|w_|input_)?(scales?(_inv)?|zeros|zero_?points?|absmax|scb|quant_state)"
    r"([/._].*)?"
)
"""What files of quantized weights have beside a kernel, in its layer or with its name in front."""


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
    gated = gates(shapes, rule_of)
    members: dict[str, list[tuple[int, Rule]]] = defaultdict(list)
    for index, (path, _) in enumerate(shapes):
        rule, block = described.get(path, (None, ""))
        if not rule or not rule.roles:
            continue
        if block in gated and MLP.issuperset(rule.roles) and not rule.read_only:
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


def gates(shapes: Shapes, rule_of: Mapping[str, Rule]) -> dict[str, str]:
    """The blocks with a third kernel of an MLP, by its name or its shape, and a leaf of its layer.

    A layer of such a name whose kernel has a rule is one of the two, whatever else it holds. Who
    gives rules for an MLP has looked at what is beside it.
    """
    written = {path for path, rule in rule_of.items() if not rule.read_only}
    layers = {paths.parent(path) for path in written if rule_of[path].roles}
    first = {
        rule_of[path].block(path): shape
        for path, shape in shapes
        if path in written and "mlp_in" in rule_of[path].roles and zoo.has_rule(rule_of[path])
    }
    found: dict[str, str] = {}
    for path, shape in shapes:
        if gate := _GATE.search(path) if path not in written else None:
            if path[: gate.end()] not in layers:
                found.setdefault(path[: gate.start()], path)
        elif path not in rule_of and shape == first.get(block := paths.parent(paths.parent(path))):
            found.setdefault(block, path)
    return found


def is_scale(name: str) -> bool:
    """Whether a path in an attention's module is that of a quantized kernel's scale."""
    *layer, last = name.split("/")
    return bool(layer and SCALES.fullmatch(last))


def scaled_elsewhere(names: Collection[str]) -> dict[str, str]:
    """The scale of each kernel that has one in another module, such as Flax's WeightNorm.

    >>> scaled_elsewhere({"a/out/kernel", "WeightNorm_0/a/out/kernel/scale"})
    {'a/out/kernel': 'WeightNorm_0/a/out/kernel/scale'}
    """
    scale_of: dict[str, str] = {}
    for path in names:
        *parts, last = path.split("/")
        if SCALES.fullmatch(last):
            without = ("/".join([*parts[:at], *parts[at + 1 :]]) for at in range(len(parts)))
            scale_of |= {kernel: path for kernel in without if kernel in names}
    return scale_of


def check_unscaled(
    leaf: Leaf, block: str, scaled: Mapping[str, str], held: Mapping[str, Sequence[str]]
) -> None:
    """Raise InputError for a kernel that is stored as a multiple of its scales: those `scaled` in
    another module, or beside it among the paths by what they are in, `held`."""
    if leaf.role.endswith("_shift"):
        return  # the norm's gain beside it is no scale of it
    if scale := scaled.get(leaf.path):
        raise InputError(
            f"{leaf.path} is scaled by {scale}, as by a weight norm: its stored length has no "
            "effect, and a scheme would leave the scale as it is"
        )
    layer = paths.parent(leaf.path)
    kernel = leaf.path.removeprefix(layer).lstrip("/.")
    for path in (*held.get(layer, ()), *held.get(leaf.path, ())):
        name = path.removeprefix(layer).lstrip("/.")
        if name.startswith(kernel):
            name = name.removeprefix(kernel).lstrip("/._")
        elif layer == block:  # a scale of its own, as of a norm or of logits
            continue
        if SCALES.fullmatch(name):
            raise InputError(
                f"{leaf.path} is quantized or scaled by {path}, which a scheme would leave as "
                "it is: give the weights in floating point, without scales"
            )


def of_optimizer(params: Any, names: Sequence[str]) -> dict[int, str]:
    """What the leaves of a training state belong to that aren't its parameters, by their index.

    A moment mirrors the parameters, and a schedule-free optimizer, float32 masters or a moving
    average hold a copy of them.
    """

    def is_optax(node: Any) -> bool:
        return isinstance(node, tuple) and type(node).__module__.split(".")[0] == "optax"

    owners: dict[int, str] = {}
    index = 0
    for node in jax.tree.leaves(params, is_leaf=is_optax):
        size = len(jax.tree.leaves(node))
        if is_optax(node):
            owners |= dict.fromkeys(range(index, index + size), f"optax's {type(node).__name__}")
        index += size
    known = frozenset(names)
    for index, path in enumerate(names):
        top, _, rest = path.partition("/")
        if _OPTIMIZER.search(path) or _moments(path) & known:
            owners.setdefault(index, "an optimizer's state")
        elif top != "params" and f"params/{rest}" in known:
            owners.setdefault(index, f"{top}, a copy of params")
    return owners


def _moments(path: str) -> set[str]:
    """The counts that an optimizer without its classes has beside the moments of a path."""
    moments = re.finditer(r"(?:^|/)(?:mu|nu)/", path)
    return {f"{path[: moment.start()]}/count".removeprefix("/") for moment in moments}
