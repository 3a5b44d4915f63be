"""Fields of schemes that depend on depth, and their values for a layer."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import shown

_PER_LAYER = "a value per layer"

PerLayer: TypeAlias = Annotated[float | tuple[float, ...] | Callable[[float], float], _PER_LAYER]
"""The type of a field that may depend on depth: `Scheme.at` resolves it for a layer."""


@dataclasses.dataclass(frozen=True)
class ByDepth:
    """Numbers from the first layer to the last, for a network of any depth: a function of depth.

    Between them it is linear. Unlike other functions it can be stored.

    Attributes:
        values: a number per layer of a network, in their order.

    Example:
        >>> ByDepth((0.0, 1.0, 3.0))(0.75)
        2.0
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = [isinstance(value, int | float) for value in self.values]
        if not numbers or not all(numbers) or not np.isfinite(self.values).all():
            raise InputError(f"values {shown(self.values)} are not one or more finite numbers")

    def __call__(self, depth: float) -> float:
        last = len(self.values) - 1
        return float(np.interp(depth * last, np.arange(last + 1), self.values))


def for_layer(name: str, value: Any, layer: int, num_layers: int) -> Any:
    """The value of a field of type `PerLayer` in a layer, or of any other field."""
    if isinstance(value, tuple):
        if len(value) != num_layers:
            raise InputError(f"{name} has {len(value)} values for {num_layers} layers")
        return value[layer]
    if callable(value):
        return value(layer / max(num_layers - 1, 1))
    return value


def is_per_layer(annotation: Any) -> bool:
    """Whether a field's declared type is `PerLayer`, also with a range or beside None."""
    return _PER_LAYER in getattr(annotation, "__metadata__", ()) or any(
        is_per_layer(part) for part in typing.get_args(annotation)
    )
