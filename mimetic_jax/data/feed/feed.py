"""The interface between a data set and a compiled program: what gives a step its examples."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

Examples: TypeAlias = tuple[jax.Array, ...]
Sums: TypeAlias = dict[str, jax.Array]
Count: TypeAlias = Callable[[Any, Examples, jax.Array], Sums]
"""(variables, examples, weights) → sums over the examples, each counted by its weight."""


class Feed(Protocol):
    """Where a step's examples come from: pure functions of (key, step)."""

    steps_per_epoch: int
    max_dispatch: int
    resident: ClassVar[bool]
    """Whether the devices hold all that training needs, so that several runs can share it."""

    @property
    def placement(self) -> Hashable:
        """What `place` depends on besides the data set: feeds of one placement share arrays."""

    def place(self, dataset: Any) -> Any:
        """The data set where training and testing want it."""

    def session(self, data: Any, key: jax.Array, first_step: int, steps: int) -> Session:
        """The arrays that dispatches are called with, from a step on."""

    def shapes(self) -> Any:
        """Shapes and shardings of a session's arrays, to compile with; without data."""

    def begin(self, arrays: Any, key: jax.Array, step: jax.Array) -> Any:
        """What the steps of one dispatch share, such as the order of an epoch; traced."""

    def examples(self, arrays: Any, shared: Any, step: jax.Array) -> Examples:
        """The examples of one step; traced."""

    def test(self, count: Count, variables: Any, data: Any) -> dict[str, Any]:
        """Sums of `count` over the test set, on the host."""

    def sample(self, data: Any, count: int = 1) -> jax.Array:
        """The first test examples, as they are stored; fewer if there are fewer."""

    def describe_step(self, key: jax.Array, step: int) -> str:
        """Which examples a step trained on, for an error message."""

    def data_bytes(self) -> int:
        """Bytes of data on every device."""


class Session(Protocol):
    """The data of one run's training, dispatch by dispatch."""

    def arrays(self) -> Any:
        """What the next dispatch is called with; may wait for it."""

    def close(self) -> None:
        """Stop the threads."""


def shaped(shape: tuple[int, ...], dtype: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    """The shape of an array on the mesh."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def labeled_images(
    count: int, image_shape: tuple[int, ...], sharding: NamedSharding
) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Shapes of images with their labels."""
    return (
        shaped((count, *image_shape), jnp.uint8, sharding),
        shaped((count,), jnp.int32, sharding),
    )


def shown(indices: np.ndarray) -> str:
    """The first of a step's examples, for `describe_step`."""
    first = ", ".join(map(str, indices[:8]))
    return f" (examples {first}{', …' if len(indices) > 8 else ''})"
