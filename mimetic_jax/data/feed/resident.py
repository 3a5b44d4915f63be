"""Images held on every device: many steps per dispatch, without the host."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from mimetic_jax.data.feed.feed import Examples, HeldData, HeldFeed, labeled_images, place
from mimetic_jax.data.feed.order import orders_of_dispatch, padded_batches
from mimetic_jax.data.sets.dataset import DatasetInfo, ImageDataset


class ResidentImages(HeldFeed):
    """A feed of images that every device holds as uint8 and gathers inside the step.

    An epoch is N // batch steps; its last N % batch examples are left out, others each epoch.
    """

    def __init__(
        self,
        info: DatasetInfo,
        batch: int,
        test_batch: int,
        max_dispatch: int,
        sharding: NamedSharding,
    ) -> None:
        super().__init__(batch, test_batch, info.num_train // batch, max_dispatch, sharding)
        self.info = info

    @property
    def placement(self) -> Hashable:
        return self.test_batch, self._batched

    def place(self, dataset: ImageDataset) -> HeldData:
        put = functools.partial(place, sharding=self._everywhere)
        batches = self._batches(*padded_batches(len(dataset.test_labels), self.test_batch))
        return HeldData(
            (put(dataset.train_images), put(dataset.train_labels)),
            {"": ((put(dataset.test_images), put(dataset.test_labels)), *batches)},
        )

    def shapes(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return labeled_images(self.info.num_train, self.info.image_shape, self._everywhere)

    def begin(self, arrays: Examples, key: jax.Array, step: jax.Array) -> tuple[Any, Any]:
        count = len(arrays[1])
        return orders_of_dispatch(key, step, count, self.steps_per_epoch, self.max_dispatch)

    def examples(self, arrays: Examples, shared: Any, step: jax.Array) -> Examples:
        images, labels = arrays
        orders, first_epoch = shared
        epoch, position = jnp.divmod(step, self.steps_per_epoch)
        start = (epoch - first_epoch, position * self.batch)
        chosen = jax.lax.dynamic_slice(orders, start, (1, self.batch))[0]
        chosen = jax.lax.with_sharding_constraint(chosen, self._batched)
        return images[chosen], labels[chosen]

    def test_examples(self, test: Examples, numbers: jax.Array) -> Examples:
        images, labels = test
        return images[numbers], labels[numbers]

    def sample(self, data: HeldData, count: int) -> jax.Array:
        return data.tests[""][0][0][:count]

    def data_bytes(self) -> int:
        examples = self.info.num_train + self.info.num_test
        return examples * (int(np.prod(self.info.image_shape)) + 4)
