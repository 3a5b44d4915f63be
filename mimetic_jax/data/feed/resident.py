"""Images held on every device: many steps per dispatch, without the host."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from mimetic_jax.data.feed.feed import (
    Count,
    Examples,
    Session,
    Shapes,
    Sums,
    Unchanging,
    labeled_images,
    place,
    shaped,
    shown,
    zeros_like,
)
from mimetic_jax.data.feed.order import batch_indices, epoch_orders, padded_batches
from mimetic_jax.data.sets.dataset import DatasetInfo, ImageDataset


@dataclasses.dataclass(frozen=True)
class ResidentData:
    """A data set on the mesh, every device holding all of it."""

    train: Examples
    test: Examples
    test_indices: jax.Array  # [S, B]
    test_weights: jax.Array  # [S, B], 0 for padding


class ResidentImages:
    """A feed of images that every device holds as uint8 and gathers inside the step.

    Args:
        info: of the data set.
        batch: B, examples per step.
        test_batch: examples per batch of the test set.
        max_dispatch: steps per dispatch, at most.
        sharding: of a batch over the mesh.
    """

    resident: ClassVar[bool] = True

    def __init__(
        self,
        info: DatasetInfo,
        batch: int,
        test_batch: int,
        max_dispatch: int,
        sharding: NamedSharding,
    ) -> None:
        self.info, self.batch, self.test_batch = info, batch, test_batch
        self.max_dispatch = max_dispatch
        self.steps_per_epoch = info.num_train // batch
        self._batched = sharding
        self._everywhere = NamedSharding(sharding.mesh, P())
        self._count = jax.jit(self._sum, static_argnums=0, out_shardings=self._everywhere)

    def place(self, dataset: ImageDataset) -> ResidentData:
        put = functools.partial(place, sharding=self._everywhere)
        batches = padded_batches(len(dataset.test_labels), self.test_batch)
        sharded = NamedSharding(self._batched.mesh, P(None, *self._batched.spec))
        indices, weights = (place(array, sharded) for array in batches)
        return ResidentData(
            train=(put(dataset.train_images), put(dataset.train_labels)),
            test=(put(dataset.test_images), put(dataset.test_labels)),
            test_indices=indices,
            test_weights=weights,
        )

    def session(self, data: ResidentData, key: jax.Array, first_step: int, steps: int) -> Session:
        return Unchanging(data.train)

    def shapes(self) -> Shapes:
        size = self.info.image_shape
        return Shapes(
            labeled_images(self.info.num_train, size, self._everywhere),
            labeled_images(self.test_batch, size, self._batched),
            shaped((self.test_batch,), jnp.float32, self._batched),
        )

    def begin(self, arrays: Examples, key: jax.Array, step: jax.Array) -> tuple[Any, Any]:
        """The orders of the epochs that a dispatch can touch."""
        first_epoch = step // self.steps_per_epoch
        epochs = self.max_dispatch // self.steps_per_epoch + 2
        return epoch_orders(key, first_epoch, epochs, len(arrays[1])), first_epoch

    def examples(self, arrays: Examples, shared: Any, step: jax.Array) -> Examples:
        images, labels = arrays
        orders, first_epoch = shared
        chosen = batch_indices(orders, first_epoch, step, self.batch)
        chosen = jax.lax.with_sharding_constraint(chosen, self._batched)
        return images[chosen], labels[chosen]

    def test(self, count: Count, variables: Any, data: ResidentData) -> dict[str, Any]:
        sums = self._count(count, variables, data.test, data.test_indices, data.test_weights)
        return jax.device_get(sums)

    def sample(self, data: ResidentData, count: int = 1) -> jax.Array:
        return data.test[0][:count]

    def describe_step(self, data: ResidentData, key: jax.Array, step: int) -> str:
        orders, first_epoch = self.begin(data.train, key, jnp.int32(step))
        return shown(np.asarray(batch_indices(orders, first_epoch, step, self.batch)))

    def data_bytes(self) -> int:
        examples = self.info.num_train + self.info.num_test
        return examples * (int(np.prod(self.info.image_shape)) + 4)

    def _sum(
        self,
        count: Count,
        variables: Any,
        arrays: Examples,
        indices: jax.Array,
        weights: jax.Array,
    ) -> Sums:
        images, labels = arrays

        def batch_sums(batch: tuple[jax.Array, jax.Array]) -> Sums:
            chosen, weight = batch
            return count(variables, (images[chosen], labels[chosen]), weight)

        def add(total: Sums, batch: tuple[jax.Array, jax.Array]) -> tuple[Sums, None]:
            return jax.tree.map(jnp.add, total, batch_sums(batch)), None

        nothing = zeros_like(batch_sums, (indices[0], weights[0]))
        return jax.lax.scan(add, nothing, (indices, weights))[0]
