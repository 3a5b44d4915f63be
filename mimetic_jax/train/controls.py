"""The control of an arm: the arm that differs from it in nothing but noise where it has structure.

It is found by its scheme, whatever its name: `NormMatched(like=scheme)` in the place of one or more
of the arm's schemes, with the same other schemes and the same other fields. A difference between
the two is then due to structure, and to nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mimetic_jax.train.schema import affecting

_Record = Mapping[str, Any]


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
    found: dict[str, str] = {}
    others = {name: _besides_schemes(record) for name, record in arms.items()}
    for name, record in arms.items():
        replaced = {
            other: _replaced(record["scheme"], arms[other]["scheme"])
            for other in arms
            if others[other] == others[name]
        }
        # Of two, the one that is noise in more places: it lacks all of the arm's structure.
        best = max(replaced, key=lambda other: replaced[other])
        if replaced[best]:
            found[name] = best
    return found


def _besides_schemes(record: _Record) -> dict[str, Any]:
    fields = affecting(record, "result")
    del fields["scheme"]
    return fields


def _replaced(schemes: list[_Record], control: list[_Record]) -> int:
    """In how many places the control has noise of the scheme; 0 if it isn't one."""
    if len(schemes) != len(control):
        return 0
    pairs = [pair for pair in zip(schemes, control, strict=True) if pair[0] != pair[1]]
    noise = ({"scheme": "NormMatched", "like": scheme} for scheme, _ in pairs)
    return len(pairs) if list(noise) == [other for _, other in pairs] else 0
