"""What gives a step its examples: the interface between a data set and a compiled program."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Generator, Hashable
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

Examples: TypeAlias = tuple[jax.Array, ...]
Sums: TypeAlias = dict[str, jax.Array]
TestSums: TypeAlias = Callable[[Any, Examples, jax.Array], Sums]
"""(variables, examples, weights) → sums over the examples, each counted by its weight."""
Session: TypeAlias = Generator[Any]
"""The data of one run's training, dispatch by dispatch; closing it stops its threads."""


class Feed:
    """Where a step's examples come from: pure functions of (key, step).

    A step has `batch` examples, a dispatch at most `max_dispatch` steps.
    """

    resident: ClassVar[bool] = True
    """Whether the devices hold all that training needs, so that several runs can share it."""

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

    @property
    def placement(self) -> Hashable:
        """What `place` depends on besides the data set: feeds of one placement share arrays."""
        return self

    def place(self, dataset: Any) -> Any:
        """Return the data set where training and testing want it."""
        raise NotImplementedError

    def session(self, data: Any, key: jax.Array, first_step: int, steps: int) -> Session:
        """Yield the arrays that each dispatch is called with, from a step on."""
        raise NotImplementedError

    def shapes(self) -> Any:
        """Return shapes and shardings of a session's arrays, to compile with; without data."""
        raise NotImplementedError

    def begin(self, arrays: Any, key: jax.Array, step: jax.Array) -> Any:
        """Return what the steps of one dispatch share, such as the order of an epoch; traced."""
        return None

    def examples(self, arrays: Any, shared: Any, step: jax.Array) -> Examples:
        """Select the examples of one step; traced. By default they are the arrays themselves."""
        return arrays

    def test(self, test_sums: TestSums, variables: Any, data: Any) -> dict[str, Any]:
        """Return the sums over the whole test set, on the host."""
        raise NotImplementedError

    def sample(self, data: Any, count: int) -> jax.Array:
        """Return the first test examples, as they are stored; fewer if there are fewer."""
        raise NotImplementedError

    def data_bytes(self) -> int:
        """Bytes of data on every device."""
        return 0


@dataclasses.dataclass(frozen=True)
class HeldData:
    """A data set on the mesh.

    Each test set, by the prefix of its sums, has its examples, their numbers [S, B] in batches, and
    weights, 0 for padding.
    """

    train: Any
    tests: dict[str, tuple[Any, jax.Array, jax.Array]]


class HeldFeed(Feed):
    """A feed of data on the devices: many steps per dispatch, without the host.

    A subclass gives the examples of a step and of a batch of a test set.
    """

    def session(self, data: Any, key: jax.Array, first_step: int, steps: int) -> Session:
        while True:
            yield data.train

    def test_examples(self, test: Any, numbers: jax.Array) -> Examples:
        """Return the examples of a test set of these numbers; traced."""
        raise NotImplementedError

    def over_batches(self, of_batch: Callable[..., Sums], *batches: jax.Array) -> Sums:
        """Return sums over the batches of a test set, numbers of examples and weights; traced."""

        def add(total: Sums, batch: tuple[jax.Array, ...]) -> tuple[Sums, None]:
            return jax.tree.map(jnp.add, total, of_batch(*batch)), None

        shapes = jax.eval_shape(of_batch, *(array[0] for array in batches))
        nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        return jax.lax.scan(add, nothing, batches)[0]

    def test(self, test_sums: TestSums, variables: Any, data: HeldData) -> dict[str, Any]:
        return jax.device_get(self._sum_tests(test_sums, variables, data.tests))

    @functools.cached_property
    def _sum_tests(self) -> Any:
        return jax.jit(self._of_tests, static_argnums=0, out_shardings=self._everywhere)

    def _of_tests(self, test_sums: TestSums, variables: Any, tests: dict[str, Any]) -> Sums:
        found: Sums = {}
        for prefix, (test, *batches) in tests.items():

            def of_batch(numbers: jax.Array, weights: jax.Array, test: Any = test) -> Sums:
                return test_sums(variables, self.test_examples(test, numbers), weights)

            sums = self.over_batches(of_batch, *batches)
            found |= {prefix + name: value for name, value in sums.items()}
        return found

    def _batches(self, numbers: np.ndarray, weights: np.ndarray) -> tuple[jax.Array, jax.Array]:
        """Numbers [S, B] and weights [S, B, ...] of batches, every batch sharded."""
        sharding = NamedSharding(self._batched.mesh, P(None, *self._batched.spec))
        return place(numbers, sharding), place(weights, sharding)


def place(array: Any, sharding: NamedSharding, kind: Any = None) -> jax.Array:
    """Return a host array that every process holds whole, as one global array; of another kind if
    given.

    Each shard is converted by itself, and copied only if it must be: a memory map may stay one.
    """

    def shard(index: Any) -> Any:
        return array[index] if kind is None else array[index].astype(kind, copy=False)

    return jax.make_array_from_callback(array.shape, sharding, shard)


def labeled_images(
    count: int, image_shape: tuple[int, ...], sharding: NamedSharding
) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Return shapes of images with their labels."""
    return (
        jax.ShapeDtypeStruct((count, *image_shape), jnp.uint8, sharding=sharding),
        jax.ShapeDtypeStruct((count,), jnp.int32, sharding=sharding),
    )
