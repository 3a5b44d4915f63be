"""The one refusal: what of a tree isn't known or lacks, and the rules to give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import shown
from mimetic_jax.rules import names, paths
from mimetic_jax.rules.rule import ATTENTION, find_rule, search
from mimetic_jax.schemes.base import name_of
from mimetic_jax.tree.match import MLP, Lack, Match
from mimetic_jax.tree.scales import is_scale
from mimetic_jax.tree.template import (
    Call,
    attention_call,
    mlp_call,
    other_calls,
    rules_argument,
    without,
)
from mimetic_jax.zoo.common import UNDIVIDED
from mimetic_jax.zoo.family import Family

_SHOWN = 8
"""Paths that an error has."""
_FORMULAS = {
    "x W_Q W_Kᵀ xᵀ / √K are the logits of a head": frozenset(ATTENTION),
    "act(x W_1) W_2 is the MLP": MLP,
}
"""What a model computes if leaves beside these kernels are harmless."""


def refuse(match: Match[Any], wanted: frozenset[str] = frozenset()) -> None:
    """Raise InputError for a match whose leaves aren't known, or which lacks some.

    Args:
        match: that of one scheme.
        wanted: what other schemes write beside it, for which an error has the rules, too.

    Raises:
        InputError: with at most eight paths, what they lack and the rules to give, in which "…" is
            what only the model's code tells.
    """
    wanted |= match.wanted
    if match.rivals:
        raise InputError(_of_rivals(match, *match.rivals))
    if match.unknown:
        raise InputError(_of_unknown(match, wanted))
    if match.problem and (calls := match.tree.family and _calls(match, wanted)):
        raise InputError(f"{match.problem}; or {_advice(match, calls, wanted)}")
    if match.problem:
        raise match.problem
    if not match.blocks and match.scheme:
        raise InputError(_of_nothing(match, wanted))
    for lack in match.lacks:
        if lack.strange:
            raise InputError(_of_lack(match, lack, wanted))


def notes(match: Match[Any]) -> Iterable[str]:
    """What to say of layers that lack what a scheme writes in others of their kind."""
    for lack in match.lacks:
        if not lack.everywhere:
            which = "MLP" if lack.roles <= MLP else ", ".join(sorted(lack.roles))
            yield f"{name_of(match.scheme)} finds no {which} in {_listed(lack.layers)}"


def _of_rivals(match: Match[Any], first: str, second: str) -> str:
    table = match.tree.name_of_rules
    alone = " or ".join(
        f"{without(table, f'{other}/', keep=True)} for {block} alone"
        for block, other in ((first, second), (second, first))
    )
    return (
        f"{first} and {second} are in one layer, and no family of models tells which of them "
        f"{_subject(match)}: pass rules={table} for both, {alone}"
    )


def _of_unknown(match: Match[Any], wanted: frozenset[str]) -> str:
    tree, unknown = match.tree, match.unknown
    if scales := [path for path in unknown if _scales(path)]:
        return (
            f"{scales[0]} seems to multiply a kernel that {_subject(match)}, as in quantized "
            "weights or by a weight norm: pass the weights in floating point, without scales"
        )
    family, missing = zoo.closest(tuple(tree.shapes.items()), tree.family)
    if missing and len(missing) < len(unknown):
        return (
            f"no family of models knows {_listed(missing, tree.shapes)}, and zoo.{family} all that "
            f"is beside it: {'; or '.join(_if_harmless(f'zoo.{family}', match.wanted))}"
        )
    message = f"no rule and no family of models knows {_listed(unknown, tree.shapes)}"
    if family:
        but = _listed(missing[:2]) or "the order of storage"
        message += f" (zoo.{family} is closest, but for {but})"
    table, written = tree.name_of_rules, _written(match)
    places = {_place(path, written): path for path in unknown}
    roles = frozenset(role for place in places for role in written.get(place, ()))
    calls = _gate(match, places) if roles & MLP else _calls(match, wanted)
    if missing and {*missing} <= {*unknown}:
        table, roles = f"zoo.{family}", match.wanted
    if not calls and not roles:
        calls = [Call("attention_rules(query=…, key=…, value=…, out=…)")]
    options = [_advice(match, calls, wanted)] if calls else []
    options += _if_harmless(table, roles)
    left = [place if place == path else f"{place}/" for place, path in places.items() if place]
    if left:
        options.append(f"{without(table, *left)} to leave what they are in as it is")
    return f"{message}: {'; or '.join(options)}"


def _if_harmless(table: str, roles: frozenset[str]) -> list[str]:
    same = [formula for formula, kernels in _FORMULAS.items() if roles & kernels]
    return [f"pass rules={table} if {' and '.join(same)} all the same"] if same else []


def _of_nothing(match: Match[Any], wanted: frozenset[str]) -> str:
    assert match.scheme is not None
    tree, name = match.tree, name_of(match.scheme)
    if not tree.paths:
        return f"{name} matches nothing: the tree has no leaves"
    seen = ", ".join(tree.paths[:_SHOWN]) + (", …" if len(tree.paths) > _SHOWN else "")
    message = f"{name} matches nothing among the paths {seen}"
    if not match.wanted:
        return f"{name} writes nothing in any tree: {shown(match.scheme)}"
    family, missing = zoo.closest(tuple(tree.shapes.items()), tree.family)
    serves = missing and _serves(zoo.FAMILIES[family], tree.paths, match.wanted)
    options = _if_harmless(f"zoo.{family}", match.wanted) if serves else []
    if options:
        message += f", and zoo.{family} doesn't know {_listed(missing)}"
    tied = [
        f'rules=(Rule("{leaf.path.replace(".", "/")}", "embedding", "{leaf.rule.layout}"), '
        f"*{tree.name_of_rules}) if {leaf.path} is the embedding of a tied model"
        for roles in tree.blocks.values()
        for role, leaf in roles.items()
        if role == "unembedding" and "embedding" in match.wanted
    ]
    unread = [Call("embedding_rules(…)", ("… is the path of the embedding",))] if tied else []
    if calls := _calls(match, wanted) or unread:
        return f"{message}: {'; or '.join([_advice(match, calls, wanted), *tied])}"
    if options:
        return f"{message}: {options[0]}"
    if match.wanted & MLP and any("mlp_gate" in roles for roles in tree.read_only.values()):
        return f"{message}: MLPs with a gate stay as they are under {name}"
    if match.scheme.needs:
        return f"{message}: it needs {match.scheme.needs}"
    roles = [role for role in sorted(match.wanted) if not role.endswith("_bias")]
    return (
        f"{message}: no rule gives one of them the role "
        f"{' or '.join(roles or sorted(match.wanted))}; put one in front, "
        f"rules=(Rule(path, role, layout), *{tree.name_of_rules})"
    )


def _serves(family: Family, every: Sequence[str], wanted: frozenset[str]) -> bool:
    """Whether a family describes a leaf of a wanted role."""
    found = (find_rule(path, family.rules, every) for path in every)
    return any(not wanted.isdisjoint(rule.roles) for rule, _ in filter(None, found))


def _of_lack(match: Match[Any], lack: Lack, wanted: frozenset[str]) -> str:
    tree = match.tree
    what = "MLPs" if lack.roles <= MLP else ", ".join(sorted(lack.roles))
    message = (
        f"{_subject(match, what)}, which no rule gives in {_listed(lack.layers)}, and none "
        f"describes {_listed(lack.strange, tree.shapes)}"
    )
    names = "first=…, second=…" if lack.roles <= MLP else "query=…, key=…, value=…, out=…"
    unread = [Call(f"{'mlp' if lack.roles <= MLP else 'attention'}_rules({names})")]
    ready = _advice(match, _calls(match, lack.roles, lack.strange) or unread, wanted)
    parents = (paths.parent(path) for path in lack.strange)
    left = {
        f"{place}/" if place else path for place, path in zip(parents, lack.strange, strict=True)
    }
    leave = without(tree.name_of_rules, *sorted(left, key=paths.natural_order))
    return f"{message}: {ready}; if they are others, leave them out with {leave}"


def _calls(match: Match[Any], wanted: frozenset[str], among: Sequence[str] = ()) -> list[Call]:
    """The calls for leaves that no rule describes, if these roles are wanted.

    Those of an MLP are for the layers of kernels `among` which it is, or for all that lack one.
    """
    tree, found, misread = match.tree, list[Call](), frozenset(match.unknown)
    described = [x for roles in tree.blocks.values() for x in roles.values()]
    kernels = [x for x in described if x.role in ATTENTION and x.path not in misread]
    widths = {leaf.rule.width(leaf.shape) for leaf in kernels}
    every = list(tree.shapes.items())
    if not wanted.isdisjoint(ATTENTION):
        undivided = any(search(UNDIVIDED, path) for path in tree.paths)
        strange = [path for path in tree.paths if path in misread or not tree.knows(path)]
        blocks = {names.layer_of(path)[0] for path in strange}
        others = [leaf for leaf in tree.shapes.items() if names.layer_of(leaf[0])[0] in blocks]
        call = attention_call(others, every=every, within=bool(kernels), undivided=undivided)
        found += [call] if call else []
        widths |= {size for path, shape in others if names.layer_of(path)[2] for size in shape}
    layers = {paths.parent(path) for path in among}
    unknown = [
        (path, shape)
        for path, shape in tree.shapes.items()
        if path not in tree.rule_of and (not layers or paths.parent(path) in layers)
    ]
    present = {role for roles in tree.blocks.values() for role in roles if not among}
    stacks = {leaf.layers or 0 for leaf in kernels if leaf.fits}
    # Experts are stacked, too, in layers that aren't.
    alike = [x for x in unknown if len(x[1]) != 3 or x[1][0] == 1 or not stacks or stacks & {*x[1]}]
    gated = match.scheme is None or match.scheme.gated
    return found + other_calls(alike, wanted - present, every=every, widths=widths, gated=gated)


def _gate(match: Match[Any], places: Mapping[str, str]) -> list[Call]:
    """The call of a gated MLP, for a leaf of the shape of its first layer."""
    every = [*match.tree.shapes.items()]
    for block, roles in match.tree.blocks.items():
        path = places.get(block.replace(".", "/"), "")
        if path and roles.keys() >= MLP and match.tree.shapes[path] == roles["mlp_in"].shape:
            inside = [leaf for leaf in every if leaf[0].startswith(block)]
            call = mlp_call(inside, every=every, widths=[roles["mlp_in"].axes["d"]])
            return [call] if call else []
    return []


def _written(match: Match[Any]) -> dict[str, frozenset[str]]:
    """The roles that are written in each block, whose path has "/" between names."""
    return {
        block.replace(".", "/"): frozenset(leaf.role for leaf in leaves)
        for block, leaves in match.blocks
    }


def _place(path: str, written: Mapping[str, Iterable[str]]) -> str:
    """The module that a leaf is in: one that is written, or attention by its name; "" if none."""
    block, _, kind = names.layer_of(path)
    if kind:
        return block.replace(".", "/") or path
    return next((place for place in paths.above(path) if place in written), "")


def _advice(match: Match[Any], calls: Sequence[Call], wanted: frozenset[str]) -> str:
    """The argument of these calls, and what decides about what they leave open."""
    tree = match.tree
    known = any(not roles.keys().isdisjoint(wanted) for roles in tree.blocks.values())
    text = f"pass {rules_argument(calls, tree.name_of_rules if known else '')}"
    reasons = [reason for call in calls for reason in call.open]
    if reasons:
        text += f", where the model's code decides: {'; '.join(dict.fromkeys(reasons))}"
    if "patch" in wanted:
        text = (
            "beside covariance=weights.patch_covariance(images, patch), of images as the model "
            f"gets them, normalized, {text}"
        )
    return text


def _scales(path: str) -> bool:
    kernel = path.endswith(names.layer_of(path)[1] or "/")  # named v, as a weight norm's
    return is_scale(path.replace(".", "/")) and "norm" not in path.lower() and not kernel


def _subject(match: Match[Any], what: str = "") -> str:
    if match.scheme is None:
        return "are read"
    return f"{name_of(match.scheme)} writes{' ' + what if what else ''}"


def _listed(among: Sequence[str], shapes: dict[str, tuple[int, ...]] | None = None) -> str:
    more = f" (and {len(among) - _SHOWN} more)" if len(among) > _SHOWN else ""
    shown_of = (
        f"{path or 'the tree'} of shape {shapes[path]}" if shapes else path or "the tree"
        for path in among[:_SHOWN]
    )
    return ", ".join(shown_of) + more
