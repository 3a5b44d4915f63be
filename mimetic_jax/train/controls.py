"""The controls of an arm: arms that differ from it in nothing but what stands for its structure.

They are found by their schemes, whatever their names: `NormMatched(like=scheme)`, which is noise,
or `Permuted(like=scheme)`, which lacks the alignment alone, in the place of one or more of the
arm's schemes, with the same other schemes and the same other fields. A difference between the two
is then due to structure, or to alignment, and to nothing else.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from mimetic_jax.train.schema import digest

NOISE, PERMUTED = "noise", "permuted"
KINDS = {NOISE: "NormMatched", PERMUTED: "Permuted"}
"""Kinds of controls, with the scheme that makes them."""


class Control(NamedTuple):
    """The kind of a control, and digests of the arms that it is the control of.

    Arms of which more places are replaced come later; there are none if it is no control.
    """

    kind: str
    of: tuple[str, ...]


_ConfigJson = Mapping[str, Any]


def control_of(config_json: _ConfigJson) -> Control:
    """The arms of which an arm of this configuration, as of `recorded_arms`, is a control."""
    schemes = config_json["scheme"]
    for kind, scheme in KINDS.items():
        places = [
            at
            for at, one in enumerate(schemes)
            if one.keys() == {"scheme", "like"} and one["scheme"] == scheme
        ]
        found = []
        for count in range(1, len(places) + 1):
            for replaced in itertools.combinations(places, count):
                meant = [one["like"] if at in replaced else one for at, one in enumerate(schemes)]
                found.append(digest({**config_json, "scheme": meant}))
        if found:
            return Control(kind, tuple(found))
    return Control(NOISE, ())


def controls(arms: Mapping[str, _ConfigJson]) -> dict[str, dict[str, str]]:
    """The controls of each arm that has one, by kind, of arms as of `config.recorded_arms`.

    >>> from mimetic_jax.schemes import Mimetic, NormMatched, Permuted, SinCos, to_dict
    >>> schemes = {
    ...     "mimetic": (SinCos(), Mimetic()),
    ...     "random": (SinCos(), NormMatched(Mimetic())),
    ...     "reordered": (SinCos(), Permuted(Mimetic())),
    ...     "mimetic_learned": (Mimetic(),),
    ... }
    >>> controls({
    ...     name: {"task": "images", "scheme": [to_dict(s) for s in found]}
    ...     for name, found in schemes.items()
    ... })
    {'mimetic': {'noise': 'random', 'permuted': 'reordered'}}
    """
    digests = {name: digest(config_json) for name, config_json in arms.items()}
    return matched(digests, {name: control_of(config_json) for name, config_json in arms.items()})


def matched(
    digests: Mapping[str, str], controlled: Mapping[str, Control]
) -> dict[str, dict[str, str]]:
    """The controls of each arm that has one, from digests of the arms and of what they control."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for (name, mark), kind in itertools.product(digests.items(), KINDS):
        known = [other for other, its in controlled.items() if its.kind == kind and mark in its.of]
        if known:  # of two, the one that lacks more of the structure
            found[name][kind] = max(known, key=lambda other: len(controlled[other].of))
    return dict(found)
