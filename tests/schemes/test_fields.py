"""Every field of every scheme takes odd values: each is refused in one line or stored as data."""

from __future__ import annotations

import dataclasses
import decimal
import fractions
import json
import math
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, schemes
from mimetic_jax.schemes import Mimetic, from_dict, to_dict
from mimetic_jax.schemes.base import REGISTRY

ODD = [
    None, True, 0, -1, 3, 2**31, 10**400, 0.5, -0.0, 1e20, 1e-320, math.inf, math.nan, 1j, "", "²",
    "1", "x\0", "\ud800", b"1", (), (0.1, 0.2), [0.1], (math.nan,), {"a": 1}, {1}, abs,
    lambda depth: depth, fractions.Fraction(1, 3), decimal.Decimal("0.1"), pathlib.Path("x"),
    np.float32(0.1), np.int64(2), np.array(0.3), np.array([0.1, 0.2]), jnp.array(0.3), jnp.ones(2),
    np.array(["a"]), object(), Mimetic(), Mimetic, (Mimetic(), 3),
]  # fmt: skip
NEEDED = {"like": Mimetic(), "scheme": Mimetic(), "counts": ((0, 2), (1, 0))}
OURS = {name: kind for name, kind in REGISTRY.items() if kind.__module__.startswith("mimetic_jax.")}


def made(kind, fields):
    needed = {
        field.name: NEEDED[field.name]
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.name in NEEDED
    }
    return kind(**needed | fields)


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_field_is_refused_in_one_line_or_kept_as_data(name):
    refused: list[str] = []
    for field in dataclasses.fields(OURS[name]):
        for value in ODD:
            try:
                scheme = made(OURS[name], {field.name: value})
            except InputError as error:
                refused.append(str(error))
                continue
            assert hash(scheme) == hash(dataclasses.replace(scheme))
            if not callable(kept := getattr(scheme, field.name)) or isinstance(
                kept, schemes.Scheme
            ):
                assert from_dict(json.loads(json.dumps(to_dict(scheme)))) == scheme
    assert all("\n" not in words and len(words) < 600 for words in refused)
