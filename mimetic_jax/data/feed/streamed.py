"""Images that stream from disk: one batch per dispatch, the next ones decoded meanwhile.

Everything is a pure function of (key, step): the batches of a process are its rows of the global
batches, whatever the number of processes, and starting at a step continues a run exactly.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from mimetic_jax.data.feed.feed import Feed, Session, TestSums, labeled_images
from mimetic_jax.data.feed.order import TrainOrder
from mimetic_jax.data.files.sources import ImageSource
from mimetic_jax.data.files.views import CropSpec, eval_view, train_view
from mimetic_jax.data.sets.dataset import StreamedDataset
from mimetic_jax.host.cores import cores

Example: TypeAlias = tuple[np.ndarray | np.number, ...]
"""Pixels uint8 [s, s, 3], the label, and of a test its weight: 0 for what fills the last batch."""
Make: TypeAlias = Callable[[int, int], Example]
"""(step, row of its batch) → an example."""

_MOST_IN_A_PIECE = 64  # images: enough to hide Grain's 0.3 ms per piece of work


class StreamedImages(Feed):
    """A feed of images that are decoded and cropped on the host.

    Each process decodes its rows of the global batch; what a step sees doesn't depend on the number
    of processes. Each image comes `repeats` times in an epoch.
    """

    resident: ClassVar[bool] = False

    def __init__(
        self,
        num_train: int,
        view: CropSpec,
        batch: int,
        test_batch: int,
        sharding: NamedSharding,
        repeats: int,
    ) -> None:
        super().__init__(batch, test_batch, num_train // batch, 1, sharding)
        self.num_train, self.view, self.repeats = num_train, view, repeats
        self._sum_batch = jax.jit(
            lambda count, *arguments: count(*arguments),
            static_argnums=0,
            out_shardings=self._everywhere,
        )

    def place(self, dataset: StreamedDataset) -> StreamedDataset:
        return dataset

    def session(
        self, data: StreamedDataset, key: jax.Array, first_step: int, steps: int
    ) -> Session:
        order = TrainOrder(self.num_train, self.batch, self.repeats, key)
        example = functools.partial(train_example, data.train, order, self.view, crop_seed(key))
        return self._batches(example, range(first_step, steps), self.batch)

    def shapes(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return labeled_images(self.batch, (self.view.size, self.view.size, 3), self._batched)

    def test(self, test_sums: TestSums, variables: Any, data: StreamedDataset) -> dict[str, Any]:
        total: dict[str, Any] = {}
        pending: dict[str, Any] = {}
        example = functools.partial(eval_example, data.test, self.view, self.test_batch)
        steps = range(-(-len(data.test) // self.test_batch))
        with contextlib.closing(self._batches(example, steps, self.test_batch)) as batches:
            for images, labels, weights in batches:
                sums = self._sum_batch(test_sums, variables, (images, labels), weights)
                # One batch behind, so that decoding goes on while the device counts.
                total, pending = _added(total, pending), sums
        return _added(total, pending)

    def sample(self, data: StreamedDataset, count: int) -> jax.Array:
        rows = range(min(count, len(data.test)))
        examples = [eval_example(data.test, self.view, len(rows), 0, row) for row in rows]
        return jnp.asarray(_stacked(examples)[0])

    def data_bytes(self) -> int:
        """Count the bytes of two batches: the one in use and the next."""
        shape = (self.batch, self.view.size**2 * 3 + 4)
        return 2 * int(np.prod(self._batched.shard_shape(shape)))

    def _batches(self, example: Make, steps: range, batch: int) -> Session:
        each, index = batch // jax.process_count(), jax.process_index()
        rows = range(index * each, (index + 1) * each)
        put = functools.partial(jax.make_array_from_process_local_data, self._batched)
        return batches(example, steps, rows, put)


def batches(
    example: Make,
    steps: range,
    rows: range,
    put: Callable[[np.ndarray], Any] = np.asarray,
) -> Session:
    """Yield the rows of each batch that this process makes, which threads make ahead of time.

    The threads, one per core and at most 32, start at the first batch. They stop when the
    generator is closed or garbage-collected.
    """
    import grain

    def numbered(number: int) -> Example:
        step, row = divmod(number, len(rows))
        return example(steps[step], rows[row])

    threads = min(cores(), 32)
    most = min(len(rows), _MOST_IN_A_PIECE)
    piece = max(images for images in range(1, most + 1) if len(rows) % images == 0)
    pieces = len(rows) // piece
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(threads, 2 * pieces))
    examples = grain.MapDataset.range(len(steps) * len(rows)).map(numbered)
    made: Any = iter(examples.batch(piece, batch_fn=_stacked).to_iter_dataset(options))
    try:
        for _ in steps:
            fields = zip(*(next(made) for _ in range(pieces)), strict=True)
            yield tuple(put(np.concatenate(parts) if pieces > 1 else parts[0]) for parts in fields)
    finally:
        made.close()


def train_example(
    source: ImageSource, order: TrainOrder, view: CropSpec, crops: int, step: int, row: int
) -> Example:
    """Return a random crop of the image in one row of a step's global batch, and its label."""
    index = order.index(step, row)
    data, label = source.read(index)
    pixels = train_view(view, data, crop_rng(crops, step, row), source.name(index))
    return pixels, np.int32(label)


def eval_example(source: ImageSource, view: CropSpec, batch: int, step: int, row: int) -> Example:
    """Return the center of an image, in the source's order, its label and its weight.

    Rows beyond the last image are black, with weight 0.
    """
    index = step * batch + row
    if index >= len(source):
        return np.zeros((view.size, view.size, 3), np.uint8), np.int32(0), np.float32(0)
    data, label = source.read(index)
    return eval_view(view, data, source.name(index)), np.int32(label), np.float32(1)


def crop_seed(key: jax.Array) -> int:
    """64 bits of a key, for `crop_rng`."""
    bits = jax.random.bits(jax.random.fold_in(key, 2**32 - 1), (2,), np.uint32)
    return int(np.asarray(bits).view(np.uint64)[0])


def crop_rng(seed: int, step: int, row: int) -> np.random.Generator:
    """Return the generator of the random crop in one row of one step's global batch.

    Philox counts from (step, row), so that threads draw in any order; a JAX key per image would
    cost more than the crop.
    """
    return np.random.Generator(np.random.Philox(key=[seed, 1], counter=[0, row, step, 0]))


def _stacked(examples: list[Example]) -> tuple[np.ndarray, ...]:
    return tuple(np.stack(field) for field in zip(*examples, strict=True))


def _added(total: dict[str, Any], sums: dict[str, Any]) -> dict[str, Any]:
    """Sums on the host with those of one more batch."""
    return total | {n: total.get(n, 0) + value for n, value in jax.device_get(sums).items()}
