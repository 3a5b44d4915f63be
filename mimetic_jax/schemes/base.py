"""What a scheme is, what it sees, and how it depends on depth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeAlias

import jax

from mimetic_jax.errors import InputError

Depthwise: TypeAlias = float | tuple[float, ...] | Callable[[float], float]


@dataclasses.dataclass(frozen=True)
class Context:
    """What a scheme may know beside its own block.

    Attributes:
        layer: index of the block among its like, from 0.
        num_layers: how many there are.
        position: rows of the position table that belong to the grid [h·w, D]; None if the tree
            has no table or several.
        grid: (h, w) of the patches; None if unknown.
    """

    layer: int = 0
    num_layers: int = 1
    position: jax.Array | None = None
    grid: tuple[int, int] | None = None


class Block(Mapping[str, jax.Array]):
    """The canonical arrays of one block by role, fetched only when a scheme looks at them.

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
        """A block of arrays at hand."""
        return cls({role: array.shape for role, array in arrays.items()}, arrays.__getitem__)

    def __getitem__(self, role: str) -> jax.Array:
        return self._fetch(role)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


@dataclasses.dataclass(frozen=True)
class Scheme:
    """What every scheme is: frozen data with two methods.

    Subclasses say which roles of a block they write, and write them.
    """

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        """The roles that would be overwritten in a block that has `roles`; empty: not mine."""
        raise NotImplementedError

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        """New canonical arrays for exactly `writes(block's roles)`."""
        raise NotImplementedError

    def at(self, layer: int, num_layers: int) -> Self:
        """The scheme of one layer: sequences and functions of depth become numbers.

        >>> from mimetic_jax.schemes import Mimetic
        >>> Mimetic(beta_vo=lambda depth: -0.4 * (1 - depth)).at(11, 12).beta_vo
        -0.0
        """
        resolved = {
            field.name: _at(field.name, getattr(self, field.name), layer, num_layers)
            for field in dataclasses.fields(self)
        }
        return dataclasses.replace(self, **resolved)


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
