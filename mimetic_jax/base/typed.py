"""Values checked by the types that a dataclass declares: schemes, configurations, records.

A field's annotation says what it takes, and `Annotated[float, Range(0, 1)]` within which range:

| annotation           | takes                                                | becomes        |
|----------------------|------------------------------------------------------|----------------|
| `float`              | a finite real number of any kind, a 0-d array        | `float`        |
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
import operator
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

    >>> print(Range(0, 1, above=True), Range(1), Range(0, 1, below=True))
    above 0 and at most 1 at least 1 at least 0 and below 1

    Attributes:
        low, high: its ends.
        above, below: whether the lower and the upper end are excluded.
        odd: whether it has the odd numbers alone.
        reason: why it ends there, a clause for error messages.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False
    odd: bool = False
    reason: str = ""

    def __contains__(self, value: float) -> bool:
        over = value > self.low if self.above else value >= self.low
        under = value < self.high if self.below else value <= self.high
        return over and under and (value % 2 == 1 or not self.odd)

    def __str__(self) -> str:
        low = f"{'above' if self.above else 'at least'} {self.low:,}"
        high = f"{'below' if self.below else 'at most'} {self.high:,}"
        ends = [low] * (self.low > -math.inf) + [high] * (self.high < math.inf)
        ends += ["odd"] * self.odd
        because = f" ({self.reason})" if self.reason else ""
        return (" and ".join(ends) or "any number") + because


NOT_NEGATIVE = Range(0)
COUNT = Range(1)
SHARE = Range(0, 1)
SEED = Range(0, 2**32 - 1)  # JAX's keys have no others


def check_fields(instance: Any) -> None:
    """Check every field of a frozen dataclass by its declared type, and store it in plain form.

    Called in `__post_init__`; fields that are set later are skipped.

    Raises:
        InputError: names the class, the first field that is wrong and its value.
    """
    name = type(instance).__name__
    for field, annotation in field_types(type(instance)).items():  # type: ignore[arg-type]
        if not hasattr(instance, field):
            continue
        before = getattr(instance, field)
        after = converted(f"{name}.{field}", annotation, before)
        if after is not before:
            object.__setattr__(instance, field, after)


@functools.cache
def field_types(of: Hashable) -> dict[str, Any]:
    """The annotations of a dataclass's fields, by name, ranges included.

    A name that can't be resolved, such as one that only a type checker imports, takes any value.
    """
    assert isinstance(of, type)
    missing: dict[str, Any] = {}
    while True:
        try:
            hints = typing.get_type_hints(of, localns=missing or None, include_extras=True)
        except NameError as error:
            if error.name in missing:
                raise
            missing[str(error.name)] = Any
        else:
            return {field.name: hints[field.name] for field in dataclasses.fields(of)}


def converted(name: str, annotation: Any, value: Any) -> Any:
    """A value in the plain form of its declared type.

    >>> converted("rate", float, np.float32(0.5)), converted("sides", tuple[int, int], [3, 3])
    (0.5, (3, 3))
    >>> converted("heads", Annotated[int, Range(1)], 0)
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: heads 0 is not an integer of at least 1

    Args:
        name: of the field, for error messages.
        annotation: its type; see the table above.
        value: to check.

    Raises:
        InputError: it is of another type or out of range.
    """
    try:
        return _converted(name, annotation, value)
    except _Mismatch:
        wanted = described(_nearest(annotation, value))
        raise InputError(f"{name} {shown(value)} is not {wanted}") from None


def from_json(of: type[T], data: Any, where: str, *, unknown_fields: bool = False) -> T:
    """A dataclass from what JSON holds of it, every field checked by its declared type.

    Args:
        of: the dataclass.
        data: parsed JSON.
        where: it is from, which starts every error message.
        unknown_fields: whether fields that the class lacks are ignored.

    Raises:
        InputError: `data` is not an object, or a field is missing, unknown or of another type.
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
    """What a declared type takes, in words.

    >>> described(Annotated[float, Range(0, 1)] | None)
    'a finite number of at least 0 and at most 1, or None'
    """
    inner, within = _parts(annotation)
    of = f" of {within}" if within else ""
    arguments = typing.get_args(inner)
    match typing.get_origin(inner):
        case typing.Union | types.UnionType:
            several = [described(_with(part, within)) for part in arguments]
            return ", ".join(several[:-1]) + f", or {several[-1]}"
        case typing.Literal:
            return f"one of {', '.join(map(repr, arguments))}"
        case builtin if builtin in _SEQUENCES:
            length = f" of {len(arguments)}" if _fixed_length(builtin, arguments) else ""
            return f"a sequence{length}, each item {described(_with(arguments[0], within))}"
        case collections.abc.Callable:
            return "a function"
        case collections.abc.Mapping:
            return "a mapping"
    if inner is float:
        return f"a finite number{of}"
    if inner is int:
        return f"an integer{of}"
    named = {bool: "True or False", str: "text", types.NoneType: "None", type(None): "None"}
    return named.get(inner) or f"an instance of {getattr(inner, '__name__', inner)}"


def shown(value: object) -> str:
    """A value in a message: its repr in one line of at most 80 characters."""
    try:
        return " ".join(repr(value).split())[:80]
    except Exception:  # the repr of a user's class, or of a deleted array
        return f"<{type(value).__name__}>"


class _Mismatch(Exception):
    """A value that isn't of the declared type."""


_SEQUENCES = (tuple, list, collections.abc.Sequence)


def _fixed_length(origin: Any, arguments: tuple[Any, ...]) -> bool:
    return origin is tuple and arguments[1:] != (...,)


def _converted(name: str, annotation: Any, value: Any) -> Any:
    inner, within = _parts(annotation)
    origin, arguments = typing.get_origin(inner), typing.get_args(inner)
    if inner in (tuple, list):
        origin, arguments = inner, (Any, ...)
    if inner is Any or inner is object:
        return value
    if inner is float:
        return _real(value, within)
    if inner is int:
        return _integer(value, within)
    if inner is bool:
        return bool(_of_type(_scalar(value), bool | np.bool_))
    if inner is str:
        return str(_of_type(os.fspath(value) if isinstance(value, os.PathLike) else value, str))
    if inner is None or inner is type(None):
        return _of_type(value, type(None))
    if origin is Literal:
        return _chosen(name, value, arguments)
    if origin in (typing.Union, types.UnionType):
        return _first_fitting(name, [_with(part, within) for part in arguments], value)
    if origin in _SEQUENCES:
        every = not _fixed_length(origin, arguments)
        return _items(name, arguments, value, within, every)
    if origin is collections.abc.Mapping or origin is dict:
        return _mapping(name, arguments, value, within)
    if origin is collections.abc.Callable or inner is collections.abc.Callable:
        if not callable(value):
            raise _Mismatch
        return value
    kind = origin or inner
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return from_json(typing.cast(type, kind), value, name)
    return _of_type(value, kind)


def _parts(annotation: Any) -> tuple[Any, Range | None]:
    """The type of an annotation and its range."""
    if typing.get_origin(annotation) is Annotated:
        inner, *notes = typing.get_args(annotation)
        return inner, next((note for note in notes if isinstance(note, Range)), None)
    return annotation, None


def _nearest(annotation: Any, value: Any) -> Any:
    """The part of a union of which a value is, but for its range; else the whole union."""
    inner, within = _parts(annotation)
    if typing.get_origin(inner) in (typing.Union, types.UnionType):
        for part in typing.get_args(inner):
            nearest = _nearest(_with(part, within), value)
            if _parts(nearest)[0] in (int, float) and _is_number(value):
                return nearest
    return annotation


def _with(annotation: Any, within: Range | None) -> Any:
    """A part of a union, with the range of the whole unless it has its own."""
    if within is None or _parts(annotation)[1] is not None:
        return annotation
    return Annotated[annotation, within]


def _real(value: Any, within: Range | None) -> Any:
    if isinstance(value, jax.core.Tracer) and not value.shape:  # under grad, jit or vmap
        return value
    value = _scalar(value)
    if not _is_number(value):
        raise _Mismatch
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _Mismatch from None
    if not math.isfinite(number) or (within is not None and number not in within):
        raise _Mismatch
    return value if type(value) is float else number


def _is_number(value: Any) -> bool:
    """Whether it is a real number; Decimal is one that `numbers` doesn't know."""
    real = isinstance(value, numbers.Real) or hasattr(value, "as_integer_ratio")
    return real and not isinstance(value, bool | np.bool_)


def _integer(value: Any, within: Range | None) -> int:
    value = _scalar(value)
    if isinstance(value, bool | np.bool_):
        raise _Mismatch
    try:
        number = operator.index(value)
    except TypeError:
        raise _Mismatch from None
    if within is not None and number not in within:
        raise _Mismatch
    return number


def _scalar(value: Any) -> Any:
    """The number in an array without axes; other values as they are."""
    if not isinstance(value, np.ndarray | jax.Array) or np.shape(value):
        return value
    try:
        return value.item()
    except Exception:  # traced, deleted, or on another process
        raise _Mismatch from None


def _chosen(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return choice
    if isinstance(value, str):
        raise unknown(name, value, (str(choice) or "''" for choice in choices))
    raise _Mismatch


def _first_fitting(name: str, parts: list[Any], value: Any) -> Any:
    """The value in the form of the first type of a union that takes it."""
    if value is None:
        parts = [part for part in parts if _parts(part)[0] is type(None)]
    problems = []
    for part in parts:
        try:
            return _converted(name, part, value)
        except _Mismatch:
            continue
        except InputError as error:  # an item of a tuple, or a name that is unknown
            problems.append(error)
    raise problems[0] if problems else _Mismatch


def _items(
    name: str, arguments: tuple[Any, ...], value: Any, within: Range | None, every: bool
) -> Any:
    if isinstance(value, jax.core.Tracer) and np.ndim(value) == 1:
        value = tuple(value)
    elif isinstance(value, np.ndarray | jax.Array) and np.ndim(value):
        try:
            value = np.asarray(value).tolist()
        except Exception:  # traced or deleted
            raise _Mismatch from None
    if not isinstance(value, tuple | list):
        raise _Mismatch
    if every:
        arguments = (arguments[0],) * len(value)
    if len(value) != len(arguments):
        raise _Mismatch
    items = tuple(
        converted(f"{name}[{index}]", _with(part, within), item)
        for index, (part, item) in enumerate(zip(arguments, value, strict=True))
    )
    same = isinstance(value, tuple) and all(map(operator.is_, items, value))
    return value if same else items


def _mapping(name: str, arguments: tuple[Any, ...], value: Any, within: Range | None) -> Any:
    if not isinstance(value, Mapping):
        raise _Mismatch
    names, items = arguments
    return {
        _converted(name, names, key): converted(f"{name}.{key}", _with(items, within), item)
        for key, item in value.items()
    }


def _of_type(value: Any, kind: Any) -> Any:
    try:
        fits = isinstance(value, kind)
    except TypeError:  # an annotation that no value is an instance of, such as a type variable
        return value
    if not fits:
        raise _Mismatch
    return value
