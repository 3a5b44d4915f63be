"""Images that stream from disk: one batch per dispatch, the next one on its way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
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
    Sums,
    labeled_images,
    shown,
)
from mimetic_jax.data.feed.order import TrainOrder
from mimetic_jax.data.feed.stream import eval_batches, train_batches
from mimetic_jax.data.files.sources import Subset
from mimetic_jax.data.sets.dataset import StreamedDataset


class StreamedImages:
    """A feed of images that are decoded and cropped on the host.

    Each process decodes its rows of the global batch; what a step sees doesn't depend on the number
    of processes.

    Args:
        num_train: N, training examples.
        image_shape: [h, w, C] that the model sees, h = w.
        batch: B, examples per step.
        test_batch: examples per batch of the test set.
        sharding: of a batch over the mesh.
        eval_fraction: of the shorter side, what a test image keeps.
        repeats: times each image comes in an epoch.
        crops: `scale`, `ratio` and `interpolation` of `train_batches`.
        threads: that decode; None: one per core.
    """

    max_dispatch = 1

    resident: ClassVar[bool] = False

    def __init__(
        self,
        num_train: int,
        image_shape: tuple[int, int, int],
        batch: int,
        test_batch: int,
        sharding: NamedSharding,
        *,
        eval_fraction: float,
        repeats: int,
        crops: dict[str, Any],
        threads: int | None,
    ) -> None:
        self.num_train, self.image_shape = num_train, image_shape
        self.batch, self.test_batch = batch, test_batch
        self.eval_fraction, self.repeats, self.crops = eval_fraction, repeats, crops
        self.steps_per_epoch = num_train // batch
        self._batched = sharding
        self._threads = threads
        everywhere = NamedSharding(sharding.mesh, P())
        self._count = jax.jit(
            lambda count, *arguments: count(*arguments),
            static_argnums=0,
            out_shardings=everywhere,
        )

    @property
    def placement(self) -> Hashable:
        return self

    def place(self, dataset: StreamedDataset) -> StreamedDataset:
        return dataset

    def session(
        self, data: StreamedDataset, key: jax.Array, first_step: int, steps: int
    ) -> Session:
        stream = train_batches(
            data.train,
            self.batch,
            self.image_shape[0],
            key,
            first_step,
            steps - first_step,
            repeats=self.repeats,
            **self.crops,
            **self._shared(),
        )
        return _Streaming(stream, self._put)

    def shapes(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return labeled_images(self.batch, self.image_shape, self._batched)

    def begin(self, arrays: Examples, key: jax.Array, step: jax.Array) -> None:
        return None

    def examples(self, arrays: Examples, shared: None, step: jax.Array) -> Examples:
        return arrays

    def test(self, count: Count, variables: Any, data: StreamedDataset) -> dict[str, Any]:
        total: dict[str, Any] = {}
        with self._test_images(data.test, self.test_batch, **self._shared()) as stream:
            pending: Sums | None = None
            for batch in stream:
                images, labels, weights = self._put(batch)
                sums = self._count(count, variables, (images, labels), weights)
                # One batch behind, so that decoding goes on while the device counts.
                total = _added(total, pending)
                pending = sums
            return _added(total, pending)

    def sample(self, data: StreamedDataset, count: int = 1) -> jax.Array:
        count = min(count, len(data.test))
        with self._test_images(Subset(data.test, np.arange(count)), count) as stream:
            return jnp.asarray(next(stream)[0])

    def describe_step(self, key: jax.Array, step: int) -> str:
        order = TrainOrder(self.num_train, self.batch, self.repeats, key)
        return shown(order.batch_indices(step))

    def data_bytes(self) -> int:
        """Of two batches: the one in use and the next."""
        shape = (self.batch, int(np.prod(self.image_shape)) + 4)
        return 2 * int(np.prod(self._batched.shard_shape(shape)))

    def _test_images(self, source: Any, batch: int, **shared: Any) -> Any:
        return eval_batches(source, batch, self.image_shape[0], self.eval_fraction, **shared)

    def _shared(self) -> dict[str, Any]:
        return {
            "process_index": jax.process_index(),
            "process_count": jax.process_count(),
            "threads": self._threads,
        }

    def _put(self, arrays: tuple[np.ndarray, ...]) -> Examples:
        make = functools.partial(jax.make_array_from_process_local_data, self._batched)
        return tuple(make(array) for array in arrays)


def _added(total: dict[str, Any], sums: Sums | None) -> dict[str, Any]:
    """Sums on the host with those of one more batch."""
    if sums is None:
        return total
    return {name: total.get(name, 0) + value for name, value in jax.device_get(sums).items()}


class _Streaming:
    def __init__(self, stream: Any, put: Callable[[tuple[np.ndarray, ...]], Examples]) -> None:
        self._stream, self._put = stream, put

    def arrays(self) -> Examples:
        return self._put(next(self._stream))

    def close(self) -> None:
        self._stream.close()
