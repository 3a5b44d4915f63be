"""Streams: one global batch for any number of processes, exact resuming, damage named."""

import contextlib
import dataclasses
import functools
import os
import subprocess
import sys
import threading
import time
from typing import Any

import jax
import numpy as np
import pytest

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.feed import streamed
from mimetic_jax.data.feed.feed import Session
from mimetic_jax.data.feed.order import TrainOrder
from mimetic_jax.data.feed.streamed import batches, crop_rng, crop_seed, train_example
from mimetic_jax.data.feed.streamed import eval_example as of_test
from mimetic_jax.data.files.views import CropSpec, eval_view, train_view
from tests.data.made import encode, examples_of, refused

KEY = jax.random.key(7)
VIEW = CropSpec(4)


@dataclasses.dataclass
class Plain:
    """Images of one color each, which tells their index; some of them damaged."""

    size: int
    damaged: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self.size

    def name(self, index: int) -> str:
        return f"image {index}"

    def read(self, index: int) -> tuple[bytes, int]:
        if index in self.damaged:
            return b"damaged", index % 5
        return encode(self.pixels(index), "PNG"), index % 5

    def pixels(self, index: int) -> np.ndarray:
        return np.full((10, 12, 3), (index, 255 - index, 9), np.uint8)


class Noise(Plain):
    """Images whose every crop differs."""

    def pixels(self, index: int) -> np.ndarray:
        return np.random.default_rng(index).integers(0, 256, (20, 30, 3), np.uint8)


def train(source: Plain, batch: int, steps: range, process=(0, 1), repeats=1, view=VIEW) -> Any:
    order = TrainOrder(len(source), batch, repeats, KEY)
    example = functools.partial(train_example, source, order, view, crop_seed(KEY))
    return list(batches(example, steps, rows_of(batch, *process)))


def rows_of(batch: int, index: int, processes: int) -> range:
    return range(batch)[index * batch // processes : (index + 1) * batch // processes]


def test_a_batch_is_what_order_and_view_say():
    source, order = Noise(11), TrainOrder(11, 4, 1, KEY)
    view = CropSpec(4, scale=(0.2, 0.9), ratio=(0.5, 2.0), interpolation="random")
    for step, (images, labels) in enumerate(train(source, 4, range(5), view=view)):
        assert images.dtype == np.uint8
        assert labels.dtype == np.int32
        for row, index in enumerate(examples_of(order, step)):
            data, label = source.read(int(index))
            expected = train_view(view, data, crop_rng(crop_seed(KEY), step, row))
            assert np.array_equal(images[row], expected)
            assert labels[row] == label


@pytest.mark.parametrize(
    ("processes", "first", "repeats"),
    [(1, 0, 1), (1, 3, 2), (1, 8, 1), (2, 0, 1), (2, 1, 3), (3, 0, 3), (4, 3, 1)],
)
def test_processes_share_out_the_same_global_batches_from_any_step_on(processes, first, repeats):
    source = Noise(31)
    whole = train(source, 12, range(9), repeats=repeats)
    for index in range(processes):
        part = train(source, 12, range(first, 9), (index, processes), repeats)
        rows = list(rows_of(12, index, processes))
        for (images, labels), (again, same) in zip(whole[first:], part, strict=True):
            assert np.array_equal(images[rows], again)
            assert np.array_equal(labels[rows], same)


def test_crops_are_philox_numbers():
    """Philox 4x64-10 written out, so that crops outlive NumPy's generators."""
    mask = 2**64 - 1

    def philox(counter: list[int], key: list[int]) -> list[int]:
        (a, b, c, d), (k, m) = counter, key
        for _ in range(10):
            x, y = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
            a, b, c, d = (y >> 64) ^ b ^ k, y & mask, (x >> 64) ^ d ^ m, x & mask
            k, m = (k + 0x9E3779B97F4A7C15) & mask, (m + 0xBB67AE8584CAA73B) & mask
        return [a, b, c, d]

    first = philox([1, 3, 9, 0], [42, 1])[0]  # NumPy counts before it draws
    assert crop_rng(42, step=9, row=3).random() == (first >> 11) * 2.0**-53


def test_threads_are_as_many_as_the_cores_that_the_process_may_use(monkeypatch):
    import grain

    options = grain.ReadOptions
    threads = []

    def read_options(*, num_threads, **others):
        threads.append(num_threads)
        return options(num_threads=num_threads, **others)

    monkeypatch.setattr(grain, "ReadOptions", read_options)
    for number in (3, 200):
        monkeypatch.setattr(streamed, "cores", lambda number=number: number)
        train(Plain(8), 4, range(1))
    assert threads == [3, 32]


@pytest.mark.parametrize("batch", [63, 65, 130])
def test_batches_larger_than_a_piece_of_work_keep_their_order(batch):
    order = TrainOrder(140, batch, 1, KEY)
    for step, (images, _) in enumerate(train(Plain(140), batch, range(2))):
        assert np.array_equal(images[:, 1, 2, 0], examples_of(order, step))


@pytest.mark.parametrize(("size", "processes"), [(1, 2), (12, 3), (13, 1), (23, 4), (24, 2)])
def test_evaluation_counts_every_example_once(size, processes):
    source, seen = Plain(size), []
    for process in range(processes):
        example = functools.partial(of_test, source, CropSpec(4, 0.9), 12)
        steps, rows = range(-(-size // 12)), rows_of(12, process, processes)
        for images, labels, weights in batches(example, steps, rows):
            assert (images.dtype, labels.dtype, weights.dtype) == (np.uint8, np.int32, np.float32)
            assert len(images) == len(labels) == len(weights) == 12 // processes
            assert set(weights.tolist()) <= {0.0, 1.0}
            shown = images[:, 0, 0, 0][weights == 1].astype(int)
            assert np.array_equal(labels[weights == 1], shown % 5)
            seen += shown.tolist()
    assert sorted(seen) == list(range(size))


def test_evaluation_shows_the_center():
    source, view = Noise(3), CropSpec(6, 0.75)
    for row in range(3):
        pixels, label, weight = of_test(source, view, 3, 0, row)
        assert np.array_equal(pixels, eval_view(view, source.read(row)[0]))
        assert (label, weight) == (row, 1)


class Gone(Plain):
    def read(self, index: int) -> tuple[bytes, int]:
        raise InputError("the disk is gone")


@pytest.mark.parametrize(
    ("source", "words"),
    [(Plain(8, (2,)), "image 2 can't be decoded"), (Gone(8), "the disk is gone")],
)
def test_an_image_that_cannot_be_read_is_named(source, words):
    refused(lambda: train(source, 8, range(1)), words)
    refused(lambda: [of_test(source, VIEW, 8, 0, row) for row in range(8)], words)


def decoding_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "grain" in thread.name]


def ended() -> bool:
    for _ in range(500):
        if not decoding_threads():
            return True
        time.sleep(0.01)
    return False


def endless() -> Session:
    example = functools.partial(of_test, Plain(8), VIEW, 0)
    return batches(example, range(10_000), range(4))


def test_threads_end_when_a_stream_is_left():
    assert ended()
    with contextlib.closing(endless()) as stream:
        next(stream)
        assert decoding_threads()
    assert ended()
    next(endless())
    assert ended()


ABANDON = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("streams", sys.argv[1])
streams = importlib.util.module_from_spec(spec)
sys.modules["streams"] = streams
spec.loader.exec_module(streams)
stream = streams.endless()
print(len(next(stream)[1]))
"""


@pytest.mark.slow
def test_an_abandoned_stream_ends_quietly_with_the_program():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ABANDON, __file__],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")
