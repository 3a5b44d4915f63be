"""Labeled images by index, which stay encoded until they are needed."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from mimetic_jax.data.files.views import View, check_image, eval_view


class ImageSource(Protocol):
    """N encoded images with labels: any object that reads them by index, thread-safely.

    Labels are int32 [N]. For TFDS data their first use reads every record: training doesn't need
    them, choosing a balanced part does.
    """

    @property
    def num_classes(self) -> int: ...

    @property
    def labels(self) -> np.ndarray: ...

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """The name of image `index` in errors."""
        ...

    def read(self, index: int) -> tuple[bytes, int]:
        """Encoded image `index` and its label."""
        ...

    def outline(self) -> bytes:
        """What is known of all images without reading them, such as their labels."""
        ...


class Subset:
    """Some images of a source, in the order of `indices`."""

    def __init__(self, source: ImageSource, indices: np.ndarray) -> None:
        self.source, self.indices = source, np.asarray(indices, np.int64)
        self.num_classes = source.num_classes

    @functools.cached_property
    def labels(self) -> np.ndarray:
        return self.source.labels[self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        return self.source.name(int(self.indices[index]))

    def read(self, index: int) -> tuple[bytes, int]:
        return self.source.read(int(self.indices[index]))

    def outline(self) -> bytes:
        return self.source.outline() + self.indices.tobytes()


def load_all(source: ImageSource, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Load every image of a source into memory: uint8 [N, s, s, 3] and labels int32 [N].

    The shorter side is resized to `size` and the center square kept, as by `eval_view`.
    """
    images = np.empty((len(source), size, size, 3), np.uint8)
    labels = np.empty(len(source), np.int32)
    view = View(size)

    def load(index: int) -> None:
        data, labels[index] = source.read(index)
        images[index] = eval_view(view, data, source.name(index))

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(load, range(len(source))):
            pass
    return images, labels


def contents(source: ImageSource, most_bytes: int = 2**29) -> bytes:
    """A hash of a source's images, their labels and their order.

    Of images that have more than `most_bytes` together, an even sample of about so many bytes is
    read: about 5,000 of ImageNet's. Their number, and what `outline` gives, count for all.

    What is read is checked as well as it can be without decoding it: a damaged image that is hashed
    here would else end a run that is recorded with this hash, and couldn't be mended.
    """
    digest = hashlib.sha256(repr((len(source), source.num_classes)).encode())
    digest.update(source.outline())

    def hashed(index: int) -> tuple[bytes, int]:
        data, label = source.read(index)
        check_image(data, source.name(index))
        return hashlib.sha256(data).digest() + label.to_bytes(4, "big"), len(data)

    total = 0
    with ThreadPoolExecutor(16) as pool:
        order = _evenly(len(source))
        while total < most_bytes and (some := list(itertools.islice(order, 256))):
            for image, size in pool.map(hashed, some):
                digest.update(image)
                total += size
    return digest.digest()


def _evenly(count: int) -> Iterator[int]:
    """All indices, in an order whose every beginning is spread over all of them."""
    stride = round(0.618 * count) or 1  # by the golden ratio
    while math.gcd(stride, count) > 1:
        stride += 1
    return (index * stride % count for index in range(count))
