"""What feeds share whose data the devices hold: many steps per dispatch, without the host."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from mimetic_jax.data.feed.feed import Count, Examples, Session, Sums


@dataclasses.dataclass(frozen=True)
class HeldData:
    """A data set on the mesh.

    Attributes:
        train: what every dispatch is called with.
        test: the test set.
        batches: numbers [S, B] of the test examples in batches, and their weights, 0 for padding.
    """

    train: Any
    test: Any
    batches: tuple[jax.Array, jax.Array]


@dataclasses.dataclass(frozen=True)
class _Unchanging:
    """A session whose dispatches are all called with the same arrays."""

    held: Any

    def arrays(self) -> Any:
        return self.held

    def close(self) -> None:
        return None


class HeldFeed:
    """A feed of data on the devices. A subclass gives the examples of a step and of a test batch.

    Args:
        batch: B, examples per step.
        test_batch: examples per batch of the test set.
        steps_per_epoch: of an epoch.
        max_dispatch: steps per dispatch, at most.
        sharding: of a batch over the mesh.
    """

    resident: ClassVar[bool] = True

    def __init__(
        self,
        batch: int,
        test_batch: int,
        steps_per_epoch: int,
        max_dispatch: int,
        sharding: NamedSharding,
    ) -> None:
        self.batch, self.test_batch = batch, test_batch
        self.steps_per_epoch, self.max_dispatch = steps_per_epoch, max_dispatch
        self._batched = sharding
        self._everywhere = NamedSharding(sharding.mesh, P())
        self._count = jax.jit(self._summed, static_argnums=0, out_shardings=self._everywhere)

    @property
    def placement(self) -> Hashable:
        return self

    def session(self, data: Any, key: jax.Array, first_step: int, steps: int) -> Session:
        return _Unchanging(data.train)

    def begin(self, arrays: Any, key: jax.Array, step: jax.Array) -> Any:
        return None

    def test_examples(self, test: Any, numbers: jax.Array) -> Examples:
        """The test examples of these numbers; traced."""
        raise NotImplementedError

    def test(self, count: Count, variables: Any, data: Any) -> dict[str, Any]:
        return jax.device_get(self._count(count, variables, data.test, *data.batches))

    def _batches(self, numbers: np.ndarray, weights: np.ndarray) -> tuple[jax.Array, jax.Array]:
        """Numbers [S, B] and weights [S, B, ...] of batches, every batch sharded."""
        sharding = NamedSharding(self._batched.mesh, P(None, *self._batched.spec))
        return place(numbers, sharding), place(weights, sharding)

    def _summed(
        self,
        count: Count,
        variables: Any,
        test: Any,
        numbers: jax.Array,
        weights: jax.Array,
    ) -> Sums:
        examples = functools.partial(self.test_examples, test)
        return summed(examples, count, variables, numbers, weights)


def place(array: Any, sharding: NamedSharding) -> jax.Array:
    """A host array that every process holds whole, as one global array."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def summed(
    examples: Callable[[jax.Array], Examples],
    count: Count,
    variables: Any,
    numbers: jax.Array,
    weights: jax.Array,
) -> Sums:
    """Sums of `count` over batches of the examples of these numbers, both [S, B]; traced."""

    def batch_sums(batch: tuple[jax.Array, jax.Array]) -> Sums:
        return count(variables, examples(batch[0]), batch[1])

    def add(total: Sums, batch: tuple[jax.Array, jax.Array]) -> tuple[Sums, None]:
        return jax.tree.map(jnp.add, total, batch_sums(batch)), None

    shapes = jax.eval_shape(batch_sums, (numbers[0], weights[0]))
    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return jax.lax.scan(add, nothing, (numbers, weights))[0]
