"""Schemes as plain data and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from mimetic_jax.errors import InputError, unknown
from mimetic_jax.schemes.base import Scheme
from mimetic_jax.schemes.baselines import (
    Conditioned,
    NormMatched,
    TFixup,
    UniformAttention,
    Zero,
    ZeroOut,
)
from mimetic_jax.schemes.conv import ConvFilters, ConvMimetic
from mimetic_jax.schemes.impulse import Impulse
from mimetic_jax.schemes.mimetic import Mimetic, SameNoise
from mimetic_jax.schemes.mlp import AntiCorrelated, ConstantBias, MeanShift
from mimetic_jax.schemes.position import SinCos

_SCHEMES: dict[str, type[Scheme]] = {
    scheme.__name__: scheme
    for scheme in (
        AntiCorrelated,
        Conditioned,
        ConstantBias,
        ConvFilters,
        ConvMimetic,
        Impulse,
        MeanShift,
        Mimetic,
        NormMatched,
        SameNoise,
        SinCos,
        TFixup,
        UniformAttention,
        Zero,
        ZeroOut,
    )
}


def to_dict(scheme: Scheme) -> dict[str, Any]:
    """The scheme as plain JSON-able data.

    >>> to_dict(SinCos(scale=2.0))
    {'scheme': 'SinCos', 'scale': 2.0, 'temperature': 10000.0, 'axes': 2}
    """
    fields = {field.name: getattr(scheme, field.name) for field in dataclasses.fields(scheme)}
    for name, value in fields.items():
        if isinstance(value, Scheme):
            fields[name] = to_dict(value)
        elif callable(value):
            raise InputError(
                f"{type(scheme).__name__}.{name} is a function, which can't be written down: "
                "give one number a layer instead"
            )
    return {"scheme": type(scheme).__name__, **fields}


def from_dict(data: Mapping[str, Any]) -> Scheme:
    """The inverse of `to_dict`.

    >>> from_dict(to_dict(NormMatched(Mimetic()))) == NormMatched(Mimetic())
    True

    Raises:
        InputError: for an unknown scheme or field, with the nearest name.
    """
    fields = dict(data)
    name = fields.pop("scheme", None)
    if name not in _SCHEMES:
        raise unknown("scheme", name, _SCHEMES)
    known = {field.name for field in dataclasses.fields(_SCHEMES[name])}
    for field, value in fields.items():
        if field not in known:
            raise unknown(f"field of {name}", field, known)
        if isinstance(value, Mapping):
            fields[field] = from_dict(value)
    return _SCHEMES[name](**fields)


def as_tuple(scheme: Scheme | tuple[Scheme, ...]) -> tuple[Scheme, ...]:
    """One scheme or several, as several; anything else is an error that names it."""
    several = scheme if isinstance(scheme, tuple) else (scheme,)
    for one in several:
        if not isinstance(one, Scheme):
            raise InputError(
                f"{one!r} is not a scheme: use one of {', '.join(sorted(_SCHEMES))} from "
                "mimetic_jax.schemes, or a tuple of them"
            )
    return several
