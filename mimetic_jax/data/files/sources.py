"""Labeled images by index, which stay encoded until they are needed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.files.views import CropSpec, check_image, color, eval_view

_MOST_NAMED = 100  # images that can't be read


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
        """Return the name of image `index` in errors."""
        ...

    def read(self, index: int) -> tuple[bytes, int]:
        """Encoded image `index` and its label."""
        ...

    def outline(self) -> bytes:
        """Return what is known of all images without reading them, such as their labels."""
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


class UnreadableImages(InputError):
    """Images that can't be read, named together."""


Map: TypeAlias = Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]]
"""A map over indices of images, without those that can't be read."""


@contextlib.contextmanager
def _reading() -> Iterator[Map]:
    """Gives a map by threads; what it can't read is raised at the end, as one error."""
    errors: list[str] = []

    def mapped(call: Callable[[int], Any], indices: Iterable[int]) -> Iterator[Any]:
        def tried(index: int) -> Any:
            try:
                return call(index)
            except InputError as error:
                return error

        for result in pool.map(tried, indices):
            if isinstance(result, InputError):
                errors.append(str(result))
            else:
                yield result

    with ThreadPoolExecutor(16) as pool:
        yield mapped
    if errors:
        count = f"{len(errors):,} images: " if len(errors) > 1 else ""
        said = "; ".join(sorted(errors)[:_MOST_NAMED])
        more = f"; and {len(errors) - _MOST_NAMED:,} more" if len(errors) > _MOST_NAMED else ""
        raise UnreadableImages(f"{count}{said}{more}: mend or remove {'them' if count else 'it'}")


def load_all(
    sources: Iterable[ImageSource], view: CropSpec
) -> tuple[list[tuple[np.ndarray, np.ndarray]], str]:
    """Load every image of sources into memory, by `eval_view`.

    Returns:
        Of each source uint8 [N, s, s, C] and labels int32 [N], and a note on images of other
        colors than RGB; "" for none.

    Raises:
        UnreadableImages: some can't be read.
    """
    colors = Counter[str]()
    with _reading() as mapped:
        loaded = [_loaded(source, view, mapped, colors) for source in sources]
    counts = [f"{count:,} {name}" for name, count in sorted(colors.items()) if name]
    return loaded, f"{', '.join(counts)} images are read as RGB" if counts else ""


def _loaded(
    source: ImageSource, view: CropSpec, mapped: Map, colors: Counter[str]
) -> tuple[np.ndarray, np.ndarray]:
    images = np.empty((len(source), view.size, view.size, view.channels), np.uint8)
    labels = np.empty(len(source), np.int32)

    def load(index: int) -> str:
        data, labels[index] = source.read(index)
        pixels, name = eval_view(view, data, source.name(index)), source.name(index)
        if view.channels == 1 and (pixels != pixels[..., :1]).any():
            raise InputError(f"{name} has colors, and the images of this set are gray")
        images[index] = pixels[..., : view.channels]
        return color(data) if view.channels == 3 else ""

    colors.update(mapped(load, range(len(source))))
    return images, labels


def contents(*sources: ImageSource, most_bytes: int = 2**29) -> bytes:
    """Hashes of sources' images, their labels and their order, one after the other.

    Of images that have more than `most_bytes` together, an even sample of about so many bytes is
    read: about 5,000 of ImageNet's. Their number, and what `outline` gives, count for all.

    What is read is checked: a damaged image that is hashed here would else end a run that is
    recorded with this hash, and couldn't be mended.

    Raises:
        UnreadableImages: some of what is read can't be.
    """
    with _reading() as mapped:
        return b"".join([_hashed(source, most_bytes, mapped) for source in sources])


def _hashed(source: ImageSource, most_bytes: int, mapped: Map) -> bytes:
    digest = hashlib.sha256(repr((len(source), source.num_classes)).encode())
    digest.update(source.outline())

    def hashed(index: int) -> tuple[bytes, int]:
        data, label = source.read(index)
        check_image(data, source.name(index))
        return hashlib.sha256(data).digest() + label.to_bytes(4, "big"), len(data)

    total, order = 0, _evenly(len(source))
    while total < most_bytes and (some := list(itertools.islice(order, 256))):
        for image, size in mapped(hashed, some):
            digest.update(image)
            total += size
    return digest.digest()


def _evenly(count: int) -> Iterator[int]:
    """All indices, in an order whose every beginning is spread over all of them."""
    stride = round(0.618 * count) or 1  # by the golden ratio
    while math.gcd(stride, count) > 1:
        stride += 1
    return (index * stride % count for index in range(count))
