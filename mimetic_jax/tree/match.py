"""What a scheme writes of a tree, and what stands in its way: pure, from paths and shapes alone."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.rules import names, paths
from mimetic_jax.rules.rule import ATTENTION, ROLES, search
from mimetic_jax.schemes import Scheme
from mimetic_jax.schemes.base import attention_kernels, depth_dependence, roles_to_write
from mimetic_jax.tree.around import depth
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.tree import Tree
from mimetic_jax.zoo.family import Family, Fit, fitted

MLP = frozenset({"mlp_in", "mlp_out"})
_ATTENTION = frozenset(ATTENTION)
_KERNELS = MLP | _ATTENTION
_OTHER_MIXING = frozenset({"token_in", "token_out", "depthwise"})
"""What some models have in the place of attention."""


class Lack(NamedTuple):
    """Layers without roles that a scheme writes.

    Attributes:
        roles: those roles.
        layers: the paths of these layers.
        everywhere: whether no layer of the tree has the roles, else others of their kind do.
        strange: kernels in the layers that nothing describes, and that may be what lacks.
    """

    roles: frozenset[str]
    layers: tuple[str, ...]
    everywhere: bool
    strange: tuple[str, ...]


S = TypeVar("S", bound=Scheme | None)


@dataclasses.dataclass(frozen=True)
class Match(Generic[S]):
    """What a scheme writes of a tree.

    Attributes:
        tree: the tree as the scheme sees it.
        scheme: the scheme; None for what `blocks` and `check` read.
        blocks: the blocks that it writes, sorted, with the leaves to write.
        unknown: leaves beside the written kernels of which neither a rule nor the family knows
            anything, and attention that no rule describes.
        rivals: two blocks of one layer that have the same roles.
        lacks: what layers lack.
        problem: what a scheme says of a block that lacks the half of a product.
    """

    tree: Tree
    scheme: S
    blocks: Sequence[tuple[str, Sequence[Leaf]]]
    unknown: Sequence[str] = ()
    rivals: tuple[str, str] | None = None
    lacks: Sequence[Lack] = ()
    problem: InputError | None = None

    @property
    def roles(self) -> frozenset[str]:
        """The roles that the scheme writes in this tree."""
        return frozenset(leaf.role for _, leaves in self.blocks for leaf in leaves)

    @property
    def wanted(self) -> frozenset[str]:
        """The roles that the scheme writes if they are there."""
        return _ATTENTION if self.scheme is None else wanted_by(self.scheme)


def wanted_by(scheme: Scheme) -> frozenset[str]:
    """The roles that a scheme writes if they are there."""
    return scheme.writes(frozenset(ROLES))


def match(tree: Tree, scheme: S) -> Match[S]:
    """Find every block that a scheme writes, and all that `refusal.refuse` refuses.

    The invariant: in a module with a kernel that is written, the family knows every leaf, each
    layer has one such module, and what the scheme writes is there. Whoever gave the rules by hand
    has decided.
    """
    blocks, halves, problem = [], list[str](), None
    for block in sorted(tree.blocks, key=paths.natural_order):
        try:
            with blaming(block):
                roles = _roles_of(scheme, tree.blocks[block])
        except InputError as error:  # half of the names may be those of another family
            problem = problem or error
            halves.append(block)
            continue
        if roles:
            leaves = (tree.stored_in(block, role) for role in sorted(roles))
            blocks.append((block, [leaf for copies in leaves for leaf in copies]))
    found = Match(tree, scheme, blocks, problem=problem)
    if tree.family is None:
        return found
    return dataclasses.replace(
        found,
        unknown=tuple(dict.fromkeys(_unknown(found, tree.family, halves))),
        rivals=_rivals(found),
        lacks=tuple(_lacks(tree, found.wanted)) if scheme else (),
    )


def _roles_of(scheme: Scheme | None, roles: Iterable[str]) -> frozenset[str]:
    if scheme is None:
        return attention_kernels(frozenset(roles))
    return roles_to_write(scheme, roles)


def covered(tree: Tree, scheme: Scheme, block: str) -> list[int | None]:
    """The layers of a block that a scheme draws: [None], if it doesn't stack layers."""
    layers = tree.layers(block)
    if not depth_dependence(scheme):
        return layers
    return [layer for layer in layers if scheme.covers(*depth(tree, block, layer))]


def _unknown(match: Match[Any], family: Family, halves: Iterable[str]) -> Iterator[str]:
    """The leaves that keep a tree from being known, also in blocks that have half a product."""
    tree = match.tree
    written = {block: _KERNELS & {leaf.role for leaf in leaves} for block, leaves in match.blocks}
    of_attention = any(not roles.isdisjoint(_ATTENTION) for roles in written.values())
    if family.by_layer:
        if of_attention:
            yield from fitted(family, tuple(tree.shapes.items())).unknown
    else:
        yield from _strangers(tree, written | dict.fromkeys(halves, _KERNELS))
        if of_attention:
            marks = [x for x in tree.paths if family.absent and search(family.absent, x)]
            yield from marks
            yield from _misread(match, fitted(family, tuple(tree.shapes.items())), bool(marks))
    if not match.wanted.isdisjoint(ATTENTION):
        others = {path: len(shape) for path, shape in tree.shapes.items() if not tree.knows(path)}
        yield from names.attention(others.items(), tree.rule_of)


def _misread(match: Match[Any], fit: Fit, every: bool) -> Iterator[str]:
    """The kernels of attention that are stored in another way by their shapes, if query, key and
    value are one kernel, or by what else the tree has: then all."""
    for _, leaves in match.blocks:
        kernels = [leaf for leaf in leaves if leaf.role in ATTENTION]
        fused = any(len(leaf.rule.roles) > 1 for leaf in kernels)
        yield from (x.path for x in kernels if every or (fused and x.path in fit.disagree))


def _strangers(tree: Tree, written: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """The leaves without a rule in the modules of the kernels that are written in some blocks.

    A module is the deepest place that all its layers are in, and those in other layers that differ
    in numbers alone. In one that isn't called attention or an MLP, other modules are left out,
    which are parts of the layer.
    """
    modules = set[str]()
    for block, roles in written.items():
        leaves = (*tree.read_only[block].items(), *tree.blocks[block].items())
        for kernels in (MLP & roles and MLP, _ATTENTION & roles and _ATTENTION):
            layers = []
            for role, leaf in leaves:
                if role in kernels:
                    parts = re.split("[/.]", leaf.path)
                    layers.append(parts[: -2 if parts[-1] in ("kernel", "weight", "w") else -1])
            same = itertools.takewhile(lambda names: len({*names}) == 1, zip(*layers, strict=False))
            module = "".join(f"{names[0]}/" for names in same)
            whole = paths.is_module(module[:-1])
            modules.add(re.sub(r"\d+", "#", module) if whole else module)
    modules.discard("")  # the tree has no name for it
    for path in tree.paths:
        at = path.replace(".", "/")
        alike = re.sub(r"\d+", "#", at)
        if any(
            alike.startswith(module) or (at.startswith(module) and at[len(module) :].count("/") < 2)
            for module in modules
        ) and not tree.knows(path):
            yield path


def _rivals(match: Match[Any]) -> tuple[str, str] | None:
    """Two attentions or MLPs of one layer, of which one may be cross-attention or an adapter."""
    every = match.tree.with_read_only().blocks
    of_kind = {
        kinds: {_layer(block, every) for block, roles in every.items() if kinds & roles.keys()}
        for kinds in (_ATTENTION, MLP)
    }
    seen: dict[tuple[str, frozenset[str]], str] = {}
    for block, leaves in match.blocks:
        roles = {leaf.role for leaf in leaves}
        for kinds, others in ((_ATTENTION, MLP), (MLP, _ATTENTION)):
            if not kinds & roles or not (layer := _layer(block, every)):
                continue
            alone = of_kind[kinds] - of_kind[others], of_kind[others] - of_kind[kinds]
            mine, theirs = (_beside(layer, each) for each in alone)
            if layer in alone[0] and mine > theirs > 0:
                layer = paths.parent(layer)  # attention, attention and MLP are sublayers of it
            if (other := seen.setdefault((layer, kinds), block)) != block:
                return other, block
    return None


def _beside(layer: str, among: Iterable[str]) -> int:
    """The number of layers in the place of one that have its name."""
    kind = paths.parent(layer), paths.family(layer)
    return sum((paths.parent(other), paths.family(other)) == kind for other in among)


def _lacks(tree: Tree, wanted: frozenset[str]) -> Iterator[Lack]:
    """The layers that lack what is wanted."""
    blocks = tree.with_read_only().blocks
    attention = [block for block, roles in blocks.items() if attention_kernels(frozenset(roles))]
    mixed = any(_OTHER_MIXING & roles.keys() for roles in blocks.values())
    lacked_by: dict[tuple[bool, tuple[str, ...]], set[str]] = defaultdict(set)
    for kind in (MLP, *({role} for role in ATTENTION)):
        if not (asked := wanted & kind):
            continue
        having = {_home(block, blocks) for block, roles in blocks.items() if asked & roles.keys()}
        if kind == MLP or attention:
            layers = {_home(block, blocks) for block in attention}
        else:
            mlps = (block for block, roles in blocks.items() if MLP & roles.keys() and not mixed)
            layers = {_home(block, blocks) for block in mlps}
        lacking = layers - having
        if having:
            kinds = {paths.family(layer) for layer in having & layers}
            lacking = {layer for layer in lacking if paths.family(layer) in kinds}
        if lacking:
            named = tuple(sorted(lacking, key=paths.natural_order))
            lacked_by[not having, named] |= asked
    for (everywhere, layers_lacking), roles in lacked_by.items():
        strange = tuple(_kernels_in(tree, layers_lacking))
        yield Lack(frozenset(roles), layers_lacking, everywhere, strange)


def _layer(block: str, blocks: Mapping[str, Mapping[str, Leaf]]) -> str:
    stacked = any(leaf.rule.stored.stacked for leaf in blocks[block].values())
    return paths.layer(block, stacked=stacked)


def _home(block: str, blocks: Mapping[str, Mapping[str, Leaf]]) -> str:
    """The layer of a block, or what it is in if no layer has a number."""
    return _layer(block, blocks) or paths.parent(block).replace(".", "/")


def _kernels_in(tree: Tree, layers: Iterable[str]) -> Iterator[str]:
    """The kernels in some layers of which nothing is known.

    What has no number may be the whole model, in which two kernels [D, F] and [F, D] count.
    """
    for layer in filter(None, layers):
        inside = {
            path: shape
            for path, shape in tree.shapes.items()
            if path.replace(".", "/").startswith(f"{layer}/")
            and len(shape) > 1
            and not tree.knows(path)
        }
        shapes = {*inside.values()}
        numbered = layer[-1].isdecimal() or paths.is_layer(layer)
        yield from (path for path, x in inside.items() if numbered or x[::-1] in shapes)
