"""What a scheme sees: the arrays of a block, and what stands around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError


@dataclasses.dataclass(frozen=True)
class Context:
    """What a scheme can use besides its block.

    Attributes:
        layer: index of the block among the blocks of its kind, from 0.
        num_layers: number of blocks of its kind.
        position: the position table's rows for the patch grid, [h·w, D]; None if the tree has no
            table or several.
        grid: (h, w) of the patches; None if unknown.
        text: whether the position table is of text, not of patches; None if the tree has neither an
            embedding of tokens nor one of patches.
        counts: how often tokens stand near each other in the text, of `weights.cooccurrence`; None
            if they aren't given.
        following: how often a token follows another, of `weights.following`; likewise.
        covariance: of the patches of the images, of `weights.patch_covariance`; likewise.
        surveyed: what the scheme's own `survey` returned.
    """

    layer: int = 0
    num_layers: int = 1
    position: jax.Array | None = None
    grid: tuple[int, int] | None = None
    text: bool | None = False
    counts: Any = None
    following: Any = None
    covariance: Any = None
    surveyed: Any = None


class MissingRole(KeyError):
    """What a block raises for a role that it doesn't have."""


class Block(Mapping[str, jax.Array]):
    """The canonical arrays of one block by role, computed from their storage only when read.

    `multipliers` have what the model multiplies a stored array by, where it isn't 1, as these are.

    >>> import jax.numpy as jnp
    >>> Block.of({"query": jnp.zeros((8, 2, 4))}).shapes
    {'query': (8, 2, 4)}
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        fetch: Callable[[str], jax.Array],
        multipliers: Mapping[str, float] | None = None,
    ) -> None:
        self.shapes = dict(shapes)
        self._fetch = fetch
        self.multipliers = multipliers or {}

    @classmethod
    def of(cls, arrays: Mapping[str, jax.Array]) -> Self:
        """Make a block of arrays."""
        return cls({role: array.shape for role, array in arrays.items()}, arrays.__getitem__)

    def __getitem__(self, role: str) -> jax.Array:
        if role not in self.shapes:
            raise MissingRole(role)
        return self._fetch(role)

    def __contains__(self, role: object) -> bool:
        return role in self.shapes  # Mapping's own reads the array

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def check_not_zero(array: jax.Array, message: str) -> None:
    """Raise InputError with this message for a concrete array, or a number, of zeros alone."""
    some = jnp.any(array)
    if not isinstance(some, jax.core.Tracer) and not some:
        raise InputError(message)
