"""Where images come from: held on the devices, or decoded while these compute."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from mimetic_jax import data as datasets
from mimetic_jax.errors import InputError
from mimetic_jax.train.cluster import mesh as meshes
from mimetic_jax.train.state import stream
from mimetic_jax.train.step import Metrics
from mimetic_jax.train.tasks.task import Examples, Feed, ImageTask, Session, Unchanging


def image_feed(config: ConfigDict, info: datasets.DatasetInfo, task: ImageTask, mesh: Mesh) -> Feed:
    """The feed of a data set: resident, or streamed where its images don't fit a device."""
    return (StreamedImages if info.streamed else ResidentImages)(config, info, task, mesh)


@dataclasses.dataclass(frozen=True)
class ResidentData:
    """A data set on the mesh, every device holding all of it."""

    train: Examples
    test: Examples
    test_indices: jax.Array  # [S, B]
    test_weights: jax.Array  # [S, B], 0 for padding


class ResidentImages:
    """Images on every device as uint8, gathered inside the step: many steps a dispatch."""

    def __init__(
        self, config: ConfigDict, info: datasets.DatasetInfo, task: ImageTask, mesh: Mesh
    ) -> None:
        if config.data.repeats > 1:
            raise InputError(
                f"data.repeats {config.data.repeats}: repeated augmentation is for streamed "
                f"images, and {info.name} is held in memory"
            )
        self.info, self.task, self.mesh = info, task, mesh
        self.batch, self.test_batch = config.batch, config.eval.batch
        self.max_dispatch = config.max_dispatch
        self.steps_per_epoch = info.num_train // config.batch
        self._everywhere = NamedSharding(mesh, P())
        self._batched = NamedSharding(mesh, meshes.BATCH)
        self._count = jax.jit(self._sum, out_shardings=self._everywhere)

    def place(self, dataset: datasets.ImageDataset) -> ResidentData:
        put = functools.partial(meshes.place, sharding=self._everywhere)
        batches = datasets.padded_batches(len(dataset.test_labels), self.test_batch)
        cut = NamedSharding(self.mesh, P(None, *meshes.BATCH))
        indices, weights = (meshes.place(array, cut) for array in batches)
        return ResidentData(
            train=(put(dataset.train_images), put(dataset.train_labels)),
            test=(put(dataset.test_images), put(dataset.test_labels)),
            test_indices=indices,
            test_weights=weights,
        )

    def begin(self, arrays: Examples, key: jax.Array, step: jax.Array) -> tuple[Any, Any]:
        """The orders of the epochs that a dispatch can touch."""
        first_epoch = step // self.steps_per_epoch
        permutations = datasets.epoch_permutations(
            jax.random.fold_in(key, 0),
            first_epoch,
            self.max_dispatch // self.steps_per_epoch + 2,
            len(arrays[1]),
        )
        return permutations, first_epoch

    def examples(self, arrays: Examples, shared: Any, step: jax.Array) -> Examples:
        images, labels = arrays
        permutations, first_epoch = shared
        chosen = datasets.batch_indices(permutations, first_epoch, step, self.batch)
        chosen = jax.lax.with_sharding_constraint(chosen, self._batched)
        return images[chosen], labels[chosen]

    def session(self, data: ResidentData, seed: int, first_step: int, steps: int) -> Session:
        return Unchanging(data.train)

    def test(self, params: Any, data: ResidentData) -> dict[str, Any]:
        return jax.device_get(self._count(params, data.test, data.test_indices, data.test_weights))

    def describe_step(self, data: ResidentData, seed: int, step: int) -> str:
        shared = self.begin(data.train, stream(seed, "data"), jnp.int32(step))
        chosen = datasets.batch_indices(*shared, step, self.batch)
        return _examples(np.asarray(chosen))

    def sample(self, data: ResidentData) -> jax.Array:
        return data.test[0][:1]

    def data_bytes(self) -> int:
        examples = self.info.num_train + self.info.num_test
        return examples * (int(np.prod(self.info.image_shape)) + 4)

    def _sum(
        self, params: Any, arrays: Examples, indices: jax.Array, weights: jax.Array
    ) -> Metrics:
        images, labels = arrays

        def add(total: Metrics, batch: tuple[jax.Array, jax.Array]) -> tuple[Metrics, None]:
            chosen, weight = batch
            sums = self.task.count(params, (images[chosen], labels[chosen]), weight)
            return jax.tree.map(jnp.add, total, sums), None

        return jax.lax.scan(add, self.task.zeros(), (indices, weights))[0]


class StreamedImages:
    """Images decoded and cropped on the host, one batch a dispatch, the next one on its way.

    Each process decodes its rows of the global batch; what a step sees doesn't depend on how many
    processes there are.
    """

    max_dispatch = 1

    def __init__(
        self, config: ConfigDict, info: datasets.DatasetInfo, task: ImageTask, mesh: Mesh
    ) -> None:
        self.size, self.task, self.mesh = task.image_shape[0], task, mesh
        self.batch, self.test_batch = config.batch, config.eval.batch
        self.settings = config.data
        self.steps_per_epoch = info.num_train // config.batch
        batched = NamedSharding(mesh, meshes.BATCH)
        self._batched = batched
        self._count = jax.jit(task.count, out_shardings=NamedSharding(mesh, P()))
        augment = config.data.augment
        self._crops = {
            "scale": tuple(augment.crop_scale) or (1.0, 1.0),
            "ratio": tuple(augment.crop_ratio) if augment.crop_scale else (1.0, 1.0),
            "interpolation": augment.interpolation,
        }

    def place(self, dataset: datasets.StreamedDataset) -> datasets.StreamedDataset:
        return dataset

    def begin(self, arrays: Examples, key: jax.Array, step: jax.Array) -> None:
        return None

    def examples(self, arrays: Examples, shared: None, step: jax.Array) -> Examples:
        return arrays

    def session(
        self, data: datasets.StreamedDataset, seed: int, first_step: int, steps: int
    ) -> Session:
        stream = datasets.train_batches(
            data.train,
            self.batch,
            self.size,
            seed,
            first_step,
            steps - first_step,
            repeats=self.settings.repeats,
            **self._crops,
            **self._common(),
        )
        return _Streaming(stream, self._put)

    def test(self, params: Any, data: datasets.StreamedDataset) -> dict[str, Any]:
        total: dict[str, Any] = {}
        with datasets.eval_batches(
            data.test, self.test_batch, self.size, self.settings.eval_fraction, **self._common()
        ) as stream:
            pending: Metrics | None = None
            for batch in stream:
                images, labels, weights = self._put(batch)
                sums = self._count(params, (images, labels), weights)
                # One batch behind, so that decoding goes on while the device counts.
                total = _added(total, pending)
                pending = sums
            return _added(total, pending)

    def describe_step(self, data: datasets.StreamedDataset, seed: int, step: int) -> str:
        order = datasets.TrainOrder(len(data.train), self.batch, self.settings.repeats, seed)
        return _examples(order.batch_indices(step))

    def sample(self, data: datasets.StreamedDataset) -> jax.Array:
        one = datasets.Subset(data.test, np.arange(1))
        with datasets.eval_batches(one, 1, self.size, self.settings.eval_fraction) as stream:
            return jnp.asarray(next(stream)[0])

    def data_bytes(self) -> int:
        """Of two batches: the one in use and the next."""
        pixels = int(np.prod(self.task.image_shape))
        shards = self.mesh.size // self.mesh.shape["tensor"]
        return 2 * self.batch * (pixels + 4) // shards

    def _common(self) -> dict[str, Any]:
        return {
            "process_index": jax.process_index(),
            "process_count": jax.process_count(),
            "threads": self.settings.threads or None,
            "strict": self.settings.strict,
        }

    def _put(self, arrays: tuple[np.ndarray, ...]) -> Examples:
        make = functools.partial(jax.make_array_from_process_local_data, self._batched)
        return tuple(make(array) for array in arrays)


class _Streaming:
    waits = True

    def __init__(self, stream: Any, put: Callable[[tuple[np.ndarray, ...]], Examples]) -> None:
        self._stream, self._put, self._told = stream, put, 0

    def arrays(self) -> Examples:
        return self._put(next(self._stream))

    def notes(self) -> Iterator[str]:
        if (met := self._stream.num_skipped) > self._told:
            names = ", ".join(self._stream.skipped[self._told : self._told + 3])
            yield f"{met - self._told} damaged images replaced by the next: {names or '…'}"
            self._told = met

    def close(self) -> None:
        self._stream.close()


def _examples(indices: np.ndarray) -> str:
    shown = ", ".join(map(str, indices[:8]))
    return f" (examples {shown}{', …' if len(indices) > 8 else ''})"


def _added(total: dict[str, Any], sums: Metrics | None) -> dict[str, Any]:
    if sums is None:
        return total
    return {name: total.get(name, 0) + value for name, value in jax.device_get(sums).items()}
