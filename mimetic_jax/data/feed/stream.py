"""Batches of images, decoded while the device computes: resumable, and split over processes.

Everything is a pure function of (key, step): the batches of a process are its rows of the global
batches, whatever the number of processes, and starting at a step continues a run exactly.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.feed.order import TrainOrder
from mimetic_jax.data.files.sources import ImageSource
from mimetic_jax.data.files.views import check_eval_view, check_train_view, eval_view, train_view

TrainBatch = tuple[np.ndarray, np.ndarray]
EvalBatch = tuple[np.ndarray, np.ndarray, np.ndarray]
Batch = TypeVar("Batch")

# Images per piece of work: enough to hide Grain's 0.3 ms per piece.
_MOST_IMAGES_IN_A_PIECE = 64

# Pixels, label, weight.
_Example = tuple[np.ndarray, int, np.float32]


class ImageStream(Generic[Batch]):
    """An iterator over batches.

    Made by `train_batches` and `eval_batches`; threads start to decode at once. They stop when it
    is closed, left as a context manager, or garbage-collected.
    """

    def __init__(self, batches: Iterator[Any], pieces: int, fields: int) -> None:
        self._batches, self._pieces, self._fields = batches, pieces, fields

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        pieces = [next(self._batches) for _ in range(self._pieces)]
        fields = (
            np.concatenate(parts) if self._pieces > 1 else parts[0]
            for parts in zip(*pieces, strict=True)
        )
        return tuple(fields)[: self._fields]  # type: ignore[return-value]

    def close(self) -> None:
        """Stop decoding; the threads end with their current piece of work."""
        self._batches.close()  # type: ignore[attr-defined]

    def __enter__(self) -> ImageStream[Batch]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def train_batches(
    source: ImageSource,
    batch: int,
    size: int,
    key: jax.Array,
    first_step: int,
    num_steps: int,
    *,
    process_index: int = 0,
    process_count: int = 1,
    repeats: int = 1,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    interpolation: str = "bilinear",
    threads: int | None = None,
) -> ImageStream[TrainBatch]:
    """Shuffled batches of random crops, in the order of `TrainOrder`, cropped by `train_view`.

    Args:
        source: N encoded images.
        batch: B, rows of a global batch; P must divide it, and it must not exceed N.
        size: s, of the crops in pixels.
        key: of the order, as for `TrainOrder`, and of the crops.
        first_step: counted from the start of training.
        num_steps: number of batches.
        process_index: p; the rows are [p·B/P, (p+1)·B/P) of the global batch.
        process_count: P.
        repeats: times each image comes in an epoch (DeiT: 3).
        scale: least and most of the image's area in a crop.
        ratio: least and most width / height of a crop.
        interpolation: "bilinear", "bicubic" or "random".
        threads: that read and decode; None: one per core, at most 32.

    Returns:
        An iterator over images uint8 [B/P, s, s, 3] and labels int32 [B/P].

    Raises:
        InputError: sizes that don't fit together; while iterating, an image that can't be read or
            decoded.

    Reference:
        Touvron et al. 2021, "Training data-efficient image transformers" (repeated augmentation).
    """
    check_train_view(size, scale, ratio, interpolation)
    order = TrainOrder(num_examples=len(source), batch=batch, repeats=repeats, key=key)
    if first_step < 0 or num_steps < 0:
        raise InputError(f"can't make {num_steps} batches from step {first_step} on")
    share = _Share(batch, process_index, process_count, first_step, num_steps)
    crops = crop_seed(key)
    view = functools.partial(
        train_view, size=size, scale=scale, ratio=ratio, interpolation=interpolation
    )
    example = _TrainExample(source, order, crops, share, view)
    return _stream(source, example, share, 2, threads)


def eval_batches(
    source: ImageSource,
    batch: int,
    size: int,
    fraction: float,
    *,
    process_index: int = 0,
    process_count: int = 1,
    interpolation: str = "bicubic",
    threads: int | None = None,
) -> ImageStream[EvalBatch]:
    """Every image once, in the source's order, as `eval_view` shows it.

    The last global batch is padded with black images of weight 0.

    Args:
        source: N encoded images.
        batch: B, rows of a global batch; P must divide it.
        size: s, in pixels.
        fraction: size over the shorter side before the cut.
        process_index: p; the rows are [p·B/P, (p+1)·B/P) of each global batch.
        process_count: P.
        interpolation: "bicubic" or "bilinear".
        threads: as for `train_batches`.

    Returns:
        An iterator over images uint8 [B/P, s, s, 3], labels int32 [B/P], weights float32 [B/P],
        with ceil(N / B) batches on every process.

    Raises:
        InputError: sizes that don't fit together; while iterating, an image that can't be read or
            decoded.
    """
    check_eval_view(size, fraction, interpolation)
    share = _Share(batch, process_index, process_count, 0, -(-len(source) // max(batch, 1)))
    view = functools.partial(eval_view, size=size, fraction=fraction, interpolation=interpolation)
    example = _EvalExample(source, share, size, view)
    return _stream(source, example, share, 3, threads)


def crop_seed(key: jax.Array) -> int:
    """64 bits of a key, for `crop_rng`."""
    bits = jax.random.bits(jax.random.fold_in(key, 2**32 - 1), (2,), np.uint32)
    return int(np.asarray(bits).view(np.uint64)[0])


def crop_rng(seed: int, step: int, row: int) -> np.random.Generator:
    """The generator of the random crop in one row of one step's global batch.

    Philox counts from (step, row), so that threads draw in any order; a JAX key per image would
    cost more than the crop.
    """
    return np.random.Generator(np.random.Philox(key=[seed, 1], counter=[0, row, step, 0]))


@dataclasses.dataclass(frozen=True)
class _Share:
    """The rows of one process, in the order of its batches."""

    batch: int
    process_index: int
    process_count: int
    first_step: int
    num_steps: int

    def __post_init__(self) -> None:
        if not 0 <= self.process_index < self.process_count:
            raise InputError(
                f"process_index {self.process_index} isn't one of {self.process_count} processes"
            )
        if self.batch < 1 or self.batch % self.process_count:
            raise InputError(
                f"batch {self.batch} isn't a multiple of the {self.process_count} processes"
            )

    @property
    def rows(self) -> int:
        return self.batch // self.process_count

    def step_and_row(self, number: int) -> tuple[int, int]:
        step, row = divmod(number, self.rows)
        return self.first_step + step, self.process_index * self.rows + row


@dataclasses.dataclass(frozen=True)
class _TrainExample:
    source: ImageSource
    order: TrainOrder
    crops: int
    share: _Share
    view: Callable[..., np.ndarray]

    def __call__(self, number: int) -> _Example:
        step, row = self.share.step_and_row(number)
        index = self.order.index(step, row)
        data, label = self.source.read(index)
        rng = crop_rng(self.crops, step, row)
        return self.view(data, rng=rng, name=self.source.name(index)), label, np.float32(1)


@dataclasses.dataclass(frozen=True)
class _EvalExample:
    source: ImageSource
    share: _Share
    size: int
    view: Callable[..., np.ndarray]

    def __call__(self, number: int) -> _Example:
        step, row = self.share.step_and_row(number)
        index = step * self.share.batch + row
        if index >= len(self.source):
            return np.zeros((self.size, self.size, 3), np.uint8), 0, np.float32(0)
        data, label = self.source.read(index)
        return self.view(data, name=self.source.name(index)), label, np.float32(1)


def _stream(
    source: ImageSource,
    example: Callable[[int], _Example],
    share: _Share,
    fields: int,
    threads: int | None,
) -> ImageStream[Any]:
    import grain

    threads = min(os.cpu_count() or 1, 32) if threads is None else threads
    if threads < 1:
        raise InputError(f"threads {threads} isn't at least 1")
    most = min(share.rows, _MOST_IMAGES_IN_A_PIECE)
    piece = max(images for images in range(1, most + 1) if share.rows % images == 0)
    pieces = share.rows // piece
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(threads, 2 * pieces))
    numbers = grain.MapDataset.range(share.num_steps * share.rows)
    batches = iter(numbers.map(example).batch(piece, batch_fn=_stack).to_iter_dataset(options))
    batches.start_prefetch()
    return ImageStream(batches, pieces, fields)


def _stack(examples: list[_Example]) -> tuple[np.ndarray, ...]:
    pixels, labels, weights = zip(*examples, strict=True)
    return np.stack(pixels), np.array(labels, np.int32), np.array(weights, np.float32)
