"""Values checked by the types that a dataclass declares: schemes, configurations, records.

A field's annotation says what it takes, and `Annotated[float, Range(0, 1)]` within which range:

| annotation           | takes                                                | becomes        |
|----------------------|------------------------------------------------------|----------------|
| `float`              | a real number of any kind, finite in float32         | `float`        |
| `int`                | an integer of any kind, but no bool                  | `int`          |
| `bool`               | a bool of Python or NumPy                            | `bool`         |
| `str`                | text, or a path                                      | `str`          |
| `Literal["a", "b"]`  | one of these                                         | as it is       |
| `tuple[int, ...]`    | a tuple, list or array of any length                 | `tuple`        |
| `list[int]`          | the same                                             | `tuple`        |
| `tuple[int, int]`    | the same, of this length                             | `tuple`        |
| `Mapping[str, X]`    | a mapping                                            | `dict`         |
| `X | None`           | X, or None                                           | X              |
| `Callable[…]`        | a function                                           | as it is       |
| a dataclass          | an instance of it; in `from_json` also a mapping     | an instance    |
| another class        | an instance of it                                    | as it is       |

So what passes is plain, hashable where tuples are, and storable as JSON. Traced numbers and
vectors pass as they are, their range unchecked.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import math
import numbers
import os
import types
import typing
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import jax
import numpy as np

from mimetic_jax.base.errors import InputError, blaming, unknown

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Range:
    """An interval of numbers.

    >>> print(Range(0, 1, above=True), Range(1), Range(high=1, below=True), Range(3, 9, odd=True))
    in (0, 1] ≥ 1 < 1 in [3, 9], odd

    Attributes:
        low, high: its ends.
        above, below: whether the lower and the upper end are excluded.
        odd: whether it has the odd numbers alone.
        reason: why it ends there, a clause for error messages.
        overflow: the same, for numbers of a size above `high` alone.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False
    odd: bool = False
    reason: str = ""
    overflow: str = ""

    def __contains__(self, value: float) -> bool:
        over = value > self.low if self.above else value >= self.low
        under = value < self.high if self.below else value <= self.high
        return over and under and (value % 2 == 1 or not self.odd)

    def __str__(self) -> str:
        low, high = f"{self.low:.10g}", f"{self.high:.10g}"
        if -math.inf == self.low or self.high in (math.inf, INT32):  # of which only a fault asks
            ends = f"{'>' if self.above else '≥'} {low}" if self.low > -math.inf else ""
            ends = ends or f"{'<' if self.below else '≤'} {high}" * (self.high < math.inf)
        else:
            ends = f"in {'(' if self.above else '['}{low}, {high}{')' if self.below else ']'}"
        return ", ".join(filter(None, (ends, "odd" * self.odd)))


INT32 = 2**31 - 1
NOT_NEGATIVE = Range(0)
COUNT = Range(1)
SHARE = Range(0, 1)
SEED = Range(0, 2**32 - 1)  # JAX's keys have no others


def check_fields(instance: Any) -> None:
    """Check every field of a frozen dataclass by its declared type, and store it in plain form.

    Called in `__post_init__`; fields that are set later are skipped.
    """
    name = type(instance).__name__
    for field, annotation in field_types(type(instance)).items():  # type: ignore[arg-type]
        if hasattr(instance, field):
            value = converted(f"{name}.{field}", annotation, getattr(instance, field))
            object.__setattr__(instance, field, value)


@functools.cache
def field_types(of: Hashable) -> dict[str, Any]:
    """Return the annotations of a dataclass's fields, by name, ranges included."""
    hints = typing.get_type_hints(of, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(of)}  # type: ignore[arg-type]


def converted(name: str, annotation: Any, value: Any) -> Any:
    """Return a value in the plain form of its declared type.

    >>> converted("rate", float, np.float32(0.5)), converted("sides", tuple[int, int], [3, 3])
    (0.5, (3, 3))
    >>> converted("heads", Annotated[int, Range(1)], 0)
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: heads must be an integer ≥ 1; got 0
    """
    try:
        return _converted(name, annotation, value)
    except _Mismatch:
        raise _wrong(name, annotation, value) from None


def from_json(of: type[T], data: Any, where: str, *, unknown_fields: bool = False) -> T:
    """Return a dataclass from what JSON holds of it, every field checked by its declared type.

    `where` it is from starts every error message. Fields that the class lacks are an error, unless
    `unknown_fields`.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: {shown(data)} is not an object with fields")
    hints = field_types(of)  # type: ignore[arg-type]
    if not unknown_fields and (strays := [name for name in data if name not in hints]):
        raise InputError(f"{where}: {unknown('field', strays[0], hints)}")
    values = {}
    for field in dataclasses.fields(of):  # type: ignore[arg-type]
        if field.name in data:
            name = f"{where}: {field.name}"
            values[field.name] = converted(name, hints[field.name], data[field.name])
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise InputError(f"{where} has no {field.name}")
    with blaming(where):  # for what the class checks itself
        return of(**values)


def described(annotation: Any) -> str:
    """Say in words what a declared type takes.

    >>> described(Annotated[float, Range(0, 1)] | None)
    'a number in [0, 1] or None'
    >>> described(tuple[int, int]), described(tuple[str, float])
    ('a sequence of 2 values, each an integer', 'a sequence of 2 values: text and a number')
    >>> described(Annotated[float | tuple[float, ...], Range(0)] | None)
    'a number ≥ 0, a sequence of such numbers, or None'
    """
    origin, arguments, within = _parts(annotation)
    if origin in _UNIONS:
        parts = [part for argument in arguments for part in _described_apart(argument)]
        for number in parts:
            if f"a sequence of values, each {number}" in parts:
                index = parts.index(f"a sequence of values, each {number}")
                parts[index] = f"a sequence of such {'integer' if 'int' in number else 'number'}s"
        *several, last = dict.fromkeys(parts)
        return f"{', '.join(several)}{',' * (len(several) > 1)} or {last}" if several else last
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if origin in _SEQUENCES:
        kinds = list(dict.fromkeys(described(part) for part in arguments if part is not ...))
        length = f"{len(arguments)} " if _fixed_length(origin, arguments) else ""
        each = f", each {kinds[0]}" if len(kinds) == 1 else f": {' and '.join(kinds)}"
        return f"a sequence of {length}values{each}"
    if origin in (float, int):
        number = "a number" if origin is float else "an integer"
        joint = ", " if str(within).startswith("odd") else " "
        return f"{number}{joint}{within}" if within and str(within) else number
    return _WORDS.get(origin) or f"an instance of {getattr(origin, '__name__', origin)}"


def _described_apart(annotation: Any) -> list[str]:
    """The parts of a union inside of a union, each in words; a single one for other types."""
    origin, arguments, _ = _parts(annotation)
    if origin in _UNIONS:
        return [part for argument in arguments for part in _described_apart(argument)]
    return [described(annotation)]


def shown(value: object) -> str:
    """Return a value in a message: its repr in one line of at most 80 characters."""
    try:
        return " ".join(repr(value).split())[:80]
    except Exception:  # the repr of a user's class, or of a deleted array
        return f"<{type(value).__name__}>"


class _Mismatch(Exception):
    """A value that isn't of the declared type."""


_UNIONS = (typing.Union, types.UnionType)
_SEQUENCES = (tuple, list, collections.abc.Sequence)
_MAPPINGS = (dict, collections.abc.Mapping)
_WORDS: dict[Any, str] = {
    bool: "True or False",
    str: "text",
    types.NoneType: "None",
    collections.abc.Callable: "a function",
    **dict.fromkeys(_MAPPINGS, "a mapping"),
}


def _wrong(name: str, annotation: Any, value: Any) -> InputError:
    message = f"{name} must be {described(annotation)}; got {shown(value)}"
    if isinstance(value, type):
        message += f". Pass an instance, such as {value.__name__}()"
    return InputError(message)


def _parts(annotation: Any) -> tuple[Any, tuple[Any, ...], Range | None]:
    """The type of an annotation, its arguments, and its range, which numbers inside have too."""
    within = None
    if typing.get_origin(annotation) is Annotated:
        annotation, *notes = typing.get_args(annotation)
        within = next((note for note in notes if isinstance(note, Range)), None)
    origin, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if within and origin in (*_UNIONS, *_SEQUENCES):  # of two ranges that of the part comes first
        arguments = tuple(a if a is ... else Annotated[a, within] for a in arguments)
    return origin, arguments, within


def _converted(name: str, annotation: Any, value: Any) -> Any:
    origin, arguments, within = _parts(annotation)
    if origin in (Any, object):
        return value
    if origin in (float, int):
        return _number(name, origin, value, within)
    if origin is bool:
        return bool(_of_type(_scalar(value), bool | np.bool_))
    if origin is str:
        return str(_of_type(os.fspath(value) if isinstance(value, os.PathLike) else value, str))
    if origin is Literal:
        return _choice(name, value, arguments)
    if origin in _UNIONS:
        return _first_fitting(name, arguments, value)
    if origin in _SEQUENCES:
        return _items(name, origin, arguments or (Any, ...), value)
    if origin in _MAPPINGS:
        names, items = arguments
        return {
            _converted(name, names, key): converted(f"{name}.{key}", items, item)
            for key, item in _of_type(value, Mapping).items()
        }
    if dataclasses.is_dataclass(origin) and isinstance(value, Mapping):
        return from_json(typing.cast(type, origin), value, name)
    return _of_type(value, origin)


def _of_type(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise _Mismatch
    return value


def _number(name: str, kind: type, value: Any, within: Range | None) -> Any:
    if kind is float and isinstance(value, jax.core.Tracer) and not value.shape:
        return value  # under grad, jit or vmap
    value = _scalar(value)
    if isinstance(value, bool):
        raise _Mismatch
    _of_type(value, numbers.Real if kind is float else numbers.Integral)
    try:
        number = kind(value)
    except OverflowError:  # an integer beyond all floats
        raise _Mismatch from None
    if not -math.inf < number < math.inf or (within and number not in within):
        wrong = _wrong(name, Annotated[kind, within] if within else kind, value)
        reason = "int32 has no larger number" if kind is int and number > INT32 else ""
        if within:
            reason = within.reason or (within.overflow if abs(number) > within.high else reason)
        raise InputError(f"{wrong} ({reason})") if reason else wrong
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(number) if kind is float else 1
    if number and (not single or np.isinf(single)):
        raise InputError(f"{name} {shown(value)} is {single:g} in float32")
    return number


def _scalar(value: Any) -> Any:
    """The number in an array without axes; other values as they are."""
    if isinstance(value, jax.core.Tracer) or not isinstance(value, np.ndarray | jax.Array):
        return value
    return value if np.shape(value) else value.item()


def _choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return choice
    _of_type(value, str)
    raise unknown(name, value, (str(choice) or "''" for choice in choices))


def _first_fitting(name: str, parts: tuple[Any, ...], value: Any) -> Any:
    """The value in the form of the first type of a union that takes it."""
    problems = []
    for part in parts:
        try:
            return _converted(name, part, value)
        except _Mismatch:
            continue
        except InputError as error:  # out of range, an item of a tuple, or an unknown name
            problems.append(error)
    raise problems[0] if problems else _Mismatch


def _items(name: str, origin: Any, arguments: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, jax.core.Tracer):
        value = tuple(value) if value.ndim == 1 else value
    elif isinstance(value, np.ndarray | jax.Array) and value.ndim:
        value = np.asarray(value).tolist()
    _of_type(value, tuple | list)
    if not _fixed_length(origin, arguments):
        arguments = (arguments[0],) * len(value)
    if len(value) != len(arguments):
        raise _Mismatch
    return tuple(
        converted(f"{name}[{index}]", part, item)
        for index, (part, item) in enumerate(zip(arguments, value, strict=True))
    )


def _fixed_length(origin: Any, arguments: tuple[Any, ...]) -> bool:
    return origin is tuple and arguments[1:] != (...,)
