"""The base class of schemes, their input, their dependence on depth, their form as plain data."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeAlias

import jax
import numpy as np

from mimetic_jax.errors import InputError, unknown

PerLayer: TypeAlias = float | tuple[float, ...] | Callable[[float], float]

_REGISTRY: dict[str, type[Scheme]] = {}


@dataclasses.dataclass(frozen=True)
class Context:
    """What a scheme can use besides its block.

    Attributes:
        layer: index of the block among the blocks of its kind, from 0.
        num_layers: number of blocks of its kind.
        position: the position table's rows for the patch grid, [h·w, D]; None if the tree has no
            table or several.
        grid: (h, w) of the patches; None if unknown.
    """

    layer: int = 0
    num_layers: int = 1
    position: jax.Array | None = None
    grid: tuple[int, int] | None = None


class Block(Mapping[str, jax.Array]):
    """The canonical arrays of one block by role, computed from their storage only when read.

    >>> import jax.numpy as jnp
    >>> Block.of({"query": jnp.zeros((8, 2, 4))}).shapes
    {'query': (8, 2, 4)}
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        fetch: Callable[[str], jax.Array],
    ) -> None:
        self.shapes = dict(shapes)
        self._fetch = fetch

    @classmethod
    def of(cls, arrays: Mapping[str, jax.Array]) -> Self:
        """A block of the given arrays."""
        return cls({role: array.shape for role, array in arrays.items()}, arrays.__getitem__)

    def __getitem__(self, role: str) -> jax.Array:
        return self._fetch(role)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


@dataclasses.dataclass(frozen=True)
class Scheme:
    """The base class: frozen data with two methods, `writes` and `__call__`.

    A subclass registers itself under its class name, by which `from_dict` finds it, wherever it is
    defined. A second class of that name raises InputError, unless it is a new definition of the
    first (same module and qualified name), as in a notebook. Names with a leading underscore are
    for shared base classes and stay unregistered.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__call__" in vars(cls):
            cls.__call__ = _of_blocks(cls.__call__)  # type: ignore[method-assign]
        if cls.__name__.startswith("_"):
            return
        first = _REGISTRY.get(cls.__name__, cls)
        if _full_name(first) != _full_name(cls):
            raise InputError(
                f"two schemes are named {cls.__name__}: {_full_name(first)} and {_full_name(cls)}; "
                "rename one, since a scheme is stored by its name"
            )
        _REGISTRY[cls.__name__] = cls

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        """The roles that are overwritten in a block with `roles`; empty if the scheme skips it."""
        raise NotImplementedError

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        """New canonical arrays for exactly the roles `writes(frozenset(block))`."""
        raise NotImplementedError

    def at(self, layer: int, num_layers: int) -> Self:
        """The scheme for one layer: sequences and functions of depth become numbers.

        >>> from mimetic_jax.schemes import Mimetic
        >>> Mimetic(beta_vo=lambda depth: -0.4 * (1 - depth)).at(11, 12).beta_vo
        -0.0
        """
        resolved = {
            field.name: _at(field.name, getattr(self, field.name), layer, num_layers)
            for field in dataclasses.fields(self)
        }
        return dataclasses.replace(self, **resolved)


def _of_blocks(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call of a scheme, with an error for who passes it to a layer as its `kernel_init`."""

    @functools.wraps(call)
    def checked(
        self: Scheme, key: jax.Array, block: Block, context: Context
    ) -> dict[str, jax.Array]:
        if not isinstance(block, Mapping):
            name = type(self).__name__
            raise InputError(
                f"{name} draws the kernels of a whole block together, so it can't be the "
                f"initializer of one: rewrite(key, params, {name}()) after init, or one of "
                "mimetic_jax.initializers"
            )
        return call(self, key, block, context)

    return checked


def field_values(scheme: Scheme) -> Iterator[Any]:
    """The values of a scheme's fields, and those of the schemes and tuples among them.

    >>> from mimetic_jax.schemes import Layers, Zero
    >>> [value for value in field_values(Layers(Zero(), 0.5)) if isinstance(value, float)]
    [0.5, 1.0]
    """
    waiting: list[Any] = [scheme]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, Scheme):
            waiting += [getattr(value, field.name) for field in dataclasses.fields(value)]
        else:
            yield value
            waiting += value if isinstance(value, tuple) else ()


def attention_kernels(roles: frozenset[str]) -> frozenset[str]:
    """Those of query, key, value and out among the roles of a block; none if there is only one.

    A lone kernel is a Dense layer that happens to be called value or out.
    """
    kernels = roles & {"query", "key", "value", "out"}
    return kernels if len(kernels) > 1 else frozenset()


def to_dict(scheme: Scheme) -> dict[str, Any]:
    """The scheme as plain data that JSON can store.

    >>> from mimetic_jax.schemes import SinCos
    >>> to_dict(SinCos(scale=2.0))
    {'scheme': 'SinCos', 'scale': 2.0, 'temperature': 10000.0, 'axes': 2}

    Raises:
        InputError: if a field is a function.
    """
    name = type(scheme).__name__
    fields = {
        field.name: _to_data(f"{name}.{field.name}", getattr(scheme, field.name))
        for field in dataclasses.fields(scheme)
    }
    return {"scheme": name, **fields}


def from_dict(data: Mapping[str, Any]) -> Scheme:
    """The inverse of `to_dict`, after JSON too: lists become tuples.

    >>> from mimetic_jax.schemes import Mimetic, NormMatched
    >>> from_dict(to_dict(NormMatched(Mimetic()))) == NormMatched(Mimetic())
    True

    Raises:
        InputError: for an unknown scheme or field, with the nearest name, or a missing field. A
            scheme of your own is known once the module that defines it is imported.
    """
    fields = dict(data)
    name = fields.pop("scheme", None)
    if name not in _REGISTRY:
        raise unknown("scheme", name, _REGISTRY)
    known = {field.name for field in dataclasses.fields(_REGISTRY[name])}
    for field in fields:
        if field not in known:
            raise unknown(f"field of {name}", field, known)
    values = {field: _from_data(value) for field, value in fields.items()}
    try:
        inspect.signature(_REGISTRY[name]).bind(**values)
    except TypeError as error:
        raise InputError(f"{name}: {error}") from error
    return _REGISTRY[name](**values)


def as_tuple(scheme: Scheme | tuple[Scheme, ...]) -> tuple[Scheme, ...]:
    """One scheme or a tuple of schemes, as a tuple.

    Raises:
        InputError: for anything else.
    """
    several = scheme if isinstance(scheme, tuple) else (scheme,)
    for one in several:
        if not isinstance(one, Scheme):
            raise InputError(
                f"{one!r} is not a scheme: use one of {', '.join(sorted(_REGISTRY))}, or a tuple "
                "of them"
            )
    return several


def _full_name(scheme: type[Scheme]) -> str:
    return f"{scheme.__module__}.{scheme.__qualname__}"


def _to_data(name: str, value: Any) -> Any:
    if isinstance(value, Scheme):
        return to_dict(value)
    if isinstance(value, tuple):
        return tuple(_to_data(name, item) for item in value)
    if isinstance(value, np.generic):
        return value.item()
    if callable(value):
        raise InputError(f"{name} is a function, which can't be stored: give one number per layer")
    return value


def _from_data(value: Any) -> Any:
    if isinstance(value, Mapping):
        return from_dict(value)
    return tuple(map(_from_data, value)) if isinstance(value, list | tuple) else value


def _at(name: str, value: Any, layer: int, num_layers: int) -> Any:
    if isinstance(value, tuple):
        if len(value) != num_layers:
            raise InputError(f"{name} has {len(value)} values for {num_layers} layers")
        return value[layer]
    if isinstance(value, Scheme):
        return value.at(layer, num_layers)
    if callable(value):
        return value(layer / max(num_layers - 1, 1))
    return value
