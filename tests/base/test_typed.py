"""Fields checked by their declared types: what passes is plain data, what doesn't is one line."""

import dataclasses
import fractions
import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range, check_fields, converted, from_json

PerLayer = float | tuple[float, ...] | Callable[[float], float]


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclasses.dataclass(frozen=True)
class Sample:
    alpha: Annotated[PerLayer | None, Range(0)] = 0.7
    heads: Annotated[int, Range(1)] = 3
    zero: bool = True
    noise: Literal["normal", "uniform"] = "normal"
    grid: tuple[int, int] | None = None
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    point: Point | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@pytest.mark.parametrize(
    "value",
    [1, 1.0, np.float32(1), np.int64(1), np.array(1), jnp.array(1.0), fractions.Fraction(1)],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_any_kind_become_floats(value):
    found = Sample(alpha=value).alpha
    assert (type(found), found) == (float, 1.0)


@pytest.mark.parametrize(
    "value", [[1, 2], (1.0, np.float32(2)), np.array([1, 2]), jnp.arange(1, 3)]
)
def test_sequences_become_tuples_of_plain_numbers(value):
    sample = Sample(alpha=value)
    assert sample.alpha == (1.0, 2.0)
    assert hash(sample.alpha) == hash((1.0, 2.0))
    assert json.loads(json.dumps(sample.alpha)) == [1.0, 2.0]


def test_functions_and_traced_numbers_pass():
    assert Sample(alpha=abs).alpha is abs
    assert jax.grad(lambda alpha: 2.0 * Sample(alpha=alpha).alpha)(3.0) == 2.0


BAD = [
    ("alpha", -1, "Sample.alpha must be a number ≥ 0; got -1"),
    ("alpha", [1, -2], r"Sample.alpha\[1\] must be a number.*got -2"),
    ("alpha", float("nan"), "Sample.alpha must be a number.*got nan"),
    ("alpha", 10**400, "must be a number .*; got 1000"),
    ("alpha", 1e300, r"Sample.alpha 1e\+300 is inf in float32"),
    ("alpha", 1e-60, "Sample.alpha 1e-60 is 0 in float32"),
    ("alpha", True, "Sample.alpha must be .*; got True"),
    ("alpha", [None], r"Sample.alpha\[0\] must be .*; got None"),
    ("alpha", np.zeros((2, 2)), r"Sample.alpha\[0\] must be .*; got \[0.0, 0.0\]"),
    ("heads", 0, "Sample.heads must be an integer ≥ 1; got 0"),
    ("heads", 2.0, "Sample.heads must be an integer.*got 2.0"),
    ("zero", 1, "Sample.zero must be True or False.*got 1"),
    ("noise", "uniforn", "unknown Sample.noise 'uniforn'; did you mean 'uniform'"),
    ("noise", 3, "Sample.noise must be one of 'normal', 'uniform'; got 3"),
    ("grid", (1,), r"Sample.grid must be a sequence of 2 values, each an integer.*got \(1,\)"),
    ("scores", {"a": "b"}, "Sample.scores.a must be a number.*got 'b'"),
    ("scores", [1], r"Sample.scores must be a mapping.*got \[1\]"),
    ("point", {"x": 1, "z": 2}, "Sample.point: unknown field 'z'"),
    ("point", {"y": 1}, "Sample.point has no x"),
    ("point", 3, "Sample.point must be an instance of Point or None; got 3"),
]


@pytest.mark.parametrize(("field", "value", "message"), BAD, ids=lambda value: str(value)[:20])
def test_other_values_are_errors_of_one_line(field, value, message):
    with pytest.raises(InputError, match=message):
        Sample(**{field: value})


@pytest.mark.parametrize(
    ("value", "end"),
    [(-1, "-1"), (0, "0"), (np.nan, "nan"), (8, "8 (it is full)"), (np.inf, "inf (it is full)")],
)
def test_a_reason_against_large_numbers_is_told_of_large_numbers(value, end):
    with pytest.raises(InputError, match=rf"; got {re.escape(end)}$"):
        converted("x", Annotated[float, Range(1, 7, overflow="it is full")], value)


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("annotation", [float, bool, str, tuple[int, ...], Point | None])
def test_no_value_raises_anything_else(annotation):
    for value in (Odd(), object(), b"1", {1}, range(3), np.array("a"), 10**5000, 2.5j):
        with pytest.raises(InputError):
            converted("field", annotation, value)


def test_json_of_a_dataclass_comes_back():
    sample = Sample(alpha=(0.5, 0.25), grid=(2, 3), scores={"a": 1.0}, point=Point(1.0))
    assert from_json(Sample, json.loads(json.dumps(dataclasses.asdict(sample))), "x") == sample


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"line 3: \[\] is not an object"),
        ({"aplha": 1}, "line 3: unknown field 'aplha'; did you mean 'alpha'"),
        ({"heads": None}, "line 3: heads must be an integer.*got None"),
    ],
)
def test_json_of_something_else_is_one_line(data, message):
    with pytest.raises(InputError, match=message):
        from_json(Sample, data, "line 3")
