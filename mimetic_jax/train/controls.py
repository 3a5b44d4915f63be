"""The control of an arm: the arm that differs from it in nothing but noise where it has structure.

It is found by its scheme, whatever its name: `NormMatched(like=scheme)` in the place of one or more
of the arm's schemes, with the same other schemes and the same other fields. A difference between
the two is then due to structure, and to nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from mimetic_jax.train.schema import digest

_Record = Mapping[str, Any]


def control_of(record: _Record) -> tuple[str, ...]:
    """Digests of the arms of which an arm is a control: more, the more of its places are noise.

    Args:
        record: of the arm, as `config.recorded_arms` returns it.
    """
    schemes = record["scheme"]
    places = [
        at
        for at, one in enumerate(schemes)
        if one.keys() == {"scheme", "like"} and one["scheme"] == "NormMatched"
    ]
    found = []
    for count in range(1, len(places) + 1):
        for chosen in itertools.combinations(places, count):
            meant = [one["like"] if at in chosen else one for at, one in enumerate(schemes)]
            found.append(digest({**record, "scheme": meant}))
    return tuple(found)


def controls(arms: Mapping[str, _Record]) -> dict[str, str]:
    """The control of each arm that has one, by name.

    Args:
        arms: the records of a comparison's arms, as `config.recorded_arms` returns them.

    >>> from mimetic_jax.schemes import Mimetic, NormMatched, SinCos, to_dict
    >>> schemes = {
    ...     "mimetic": (SinCos(), Mimetic()),
    ...     "noise": (SinCos(), NormMatched(Mimetic())),
    ...     "mimetic_learned": (Mimetic(),),
    ... }
    >>> controls({
    ...     name: {"task": "images", "scheme": [to_dict(s) for s in found]}
    ...     for name, found in schemes.items()
    ... })
    {'mimetic': 'noise'}
    """
    digests = {name: digest(record) for name, record in arms.items()}
    return matched(digests, {name: control_of(record) for name, record in arms.items()})


def matched(
    digests: Mapping[str, str], controlled: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """The control of each arm that has one, from digests of the arms and of what they control."""
    found = {}
    for name, mark in digests.items():
        known = [other for other, marks in controlled.items() if mark in marks]
        if known:  # of two, the one that is noise in more places: it lacks more of the structure
            found[name] = max(known, key=lambda other: len(controlled[other]))
    return found
