"""Layers that lack what a scheme is asked to write: refused with the rules to give, or named."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import ATTENTION
from mimetic_jax.schemes import Scheme
from mimetic_jax.schemes.base import attention_kernels, name_of
from mimetic_jax.tree import advice
from mimetic_jax.tree.checks import strangers
from mimetic_jax.tree.tree import Matches, Tree

_MLP = frozenset({"mlp_in", "mlp_out"})
_OTHER_MIXING = frozenset({"token_in", "token_out", "depthwise"})
"""What some models have in the place of attention."""

_SHOWN = 4
"""Paths that an error or a note has."""


def check(tree: Tree, scheme: Scheme, matches: Matches) -> None:
    """Raise InputError if layers lack what a scheme writes, and have kernels that may be it.

    A layer without further kernels, such as attention alone, lacks nothing, and a gated MLP is one
    that most schemes leave as it is.
    """
    for roles, layers, everywhere in _lacking(tree, scheme):
        if roles <= _MLP:
            near = tree.paths if everywhere else _within(tree.paths, _places(tree, layers))
            own = advice.calls(tree, roles, _matrices(tree, near, roles), gated=scheme.gated)
            if call := advice.sentence(tree, scheme, own):
                where = _listed(_places(tree, layers))
                raise InputError(
                    f"{name_of(scheme)} writes MLPs, and no rule describes that of {where}: {call};"
                    " if these are no MLPs, Rule(path, ()) leaves their leaves out"
                )
        elif everywhere:
            strange = [path for layer in layers for path in strangers(tree, layer)]
            if not any(attention_kernels(frozenset(tree.blocks[layer])) for layer in layers):
                strange = _within(tree.paths, filter(None, _places(tree, layers)))
            if kernels := _matrices(tree, strange, roles):
                raise InputError(
                    f"{name_of(scheme)} writes {', '.join(sorted(roles))}, which no rule gives, "
                    f"and none describes {_listed(kernels)}: put rules for attention in front, "
                    "such as attention_rules(query=…, key=…, value=…, out=…), or leave these out "
                    "with "
                    f"{advice.rules_without(tree, *kernels[:_SHOWN])}"
                )


def notes(tree: Tree, scheme: Scheme) -> Iterator[str]:
    """What to say of layers that lack what a scheme writes in others of their kind."""
    for roles, layers, everywhere in _lacking(tree, scheme):
        if not everywhere:
            which = "MLP" if roles <= _MLP else ", ".join(sorted(roles))
            yield f"{name_of(scheme)} finds no {which} in {_listed(_places(tree, layers))}"


def _lacking(tree: Tree, scheme: Scheme) -> Iterator[tuple[frozenset[str], list[str], bool]]:
    """Roles that a scheme writes, the blocks whose layers lack them, and whether all blocks do;
    else others of their family have them."""
    blocks, wanted = tree.with_read_only().blocks, advice.wanted_by(scheme)
    attention = [block for block, roles in blocks.items() if attention_kernels(frozenset(roles))]
    mixed = any(_OTHER_MIXING & roles.keys() for roles in blocks.values())
    lacked_by: dict[tuple[bool, tuple[str, ...]], set[str]] = defaultdict(set)
    for kind in (_MLP, *({role} for role in ATTENTION)):
        asked = wanted & kind
        having = [block for block, roles in blocks.items() if asked & roles.keys()]
        layers = [block for block in attention if block not in having]
        if kind == _MLP:
            places = zip(attention, _places(tree, attention), strict=True)
            layers = [block for block, place in places if not _within(having, [place])]
        elif not attention and not mixed:
            layers = [block for block, roles in blocks.items() if _MLP & roles.keys()]
        if having:
            families = {paths.family(block) for block in attention if block not in layers}
            layers = [block for block in layers if paths.family(block) in families]
        lacked_by[not having, tuple(sorted(layers, key=paths.natural_order))] |= asked
    for (everywhere, blocks_lacking), lacked in lacked_by.items():
        if lacked and blocks_lacking:
            yield frozenset(lacked), [*blocks_lacking], everywhere


def _places(tree: Tree, blocks: Iterable[str]) -> list[str]:
    """The layers that blocks are in: a numbered block with the names of modules in it is one."""
    places, described = [], tree.with_read_only().blocks
    for block in blocks:
        leaf = next(iter(described[block].values()))
        inside = re.sub(r"[/.](kernel|weight|bias|[wb])$", "", leaf.path.removeprefix(block))
        whole = block[-1:].isdecimal() and re.search(r".[/.]", inside)
        places.append(paths.above(block)[0 if whole or not block else 1])
    return places


def _within(among: Iterable[str], places: Iterable[str]) -> list[str]:
    """Those paths that are in one of some places, or are one."""
    starts = tuple(f"{place}/" if place else "" for place in places)
    return [path for path in among if f"{path}/".replace(".", "/").startswith(starts)]


def _matrices(tree: Tree, among: Iterable[str], roles: frozenset[str]) -> list[str]:
    """The kernels of these paths that no rule describes, or leaves out where they may have one of
    these roles."""
    return [
        path
        for path in among
        if path not in tree.rule_of
        and len(tree.shapes[tree.indices[path]][1]) > 1
        and not tree.leaves_out(path, roles)
    ]


def _listed(among: Sequence[str]) -> str:
    more = f" (and {len(among) - _SHOWN} more)" if len(among) > _SHOWN else ""
    return ", ".join(path or "the tree" for path in among[:_SHOWN]) + more
