"""A data set of labeled images: what is known of it, its arrays or its files, and parts of it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Self, final

import jax
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import COUNT, check_fields
from mimetic_jax.data.files.sources import ImageSource, Subset, contents

Split = tuple[np.ndarray, np.ndarray]  # images uint8 [N, h, w, C], labels int32 [N]

_PER_COUNT = 128  # images at a time: bincount makes them eight times as large

HELD_OUT = 0.2
"""The share of each class of the training images on which learning rates are chosen."""

_SEED, _SUBSET = 0, 2  # Philox key of subsets; independent of the run's seed


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Shape, published size and origin of a data set.

    Args:
        image_shape: height, width and channels of one image; of a streamed set, whose images differ
            in size, the shape they are resized to.
        source: where the files come from.
        mean: per channel, over the training images, with white as 1; defaults to ImageNet's, by
            which published recipes normalize other sets, too.
        std: standard deviation per channel, likewise.
        tfds: its name in TFDS; "" if TFDS doesn't have it.
        splits: the splits used as train and test examples, in TFDS notation.
        folder: the name of the published folder or archive, if that isn't `name`.
        streamed: read from disk while training, instead of held in memory.
        arrays: read from NAME.npz, which `mimetic download` makes of the published files.
        included: reads the splits of a set that needs no files.
        notes: what isn't read, and what else a reader of results should know; "" for none.
    """

    name: str
    image_shape: tuple[int, int, int]
    num_classes: int
    num_train: int
    num_test: int
    source: str
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    tfds: str = ""
    splits: tuple[str, str] = ("train", "test")
    folder: str = ""
    streamed: bool = False
    arrays: bool = False
    included: Callable[[], tuple[Split, Split]] | None = None
    notes: str = dataclasses.field(default="", compare=False)

    def __str__(self) -> str:
        return (
            f"{self.name}, {self.num_train:,} train and {self.num_test:,} test images of "
            f"{self.image_shape}, {self.num_classes} classes"
            f"{self.notes and f'; {self.notes}'}"
        )


class _Parts:
    """Parts of a data set's training images, held in memory or on disk."""

    def labels(self) -> np.ndarray:
        """Return the labels of the training images, int32 [N]."""
        raise NotImplementedError

    def chosen(self, train: np.ndarray, test: np.ndarray | None = None) -> Self:
        """Select training examples, and optionally others of them to test on."""
        raise NotImplementedError

    def part(self, subset: float) -> Self:
        """Select a fraction of each class to train on; all test images stay."""
        return self if subset == 1 else self.chosen(balanced(self.labels(), subset))

    def held_out(self, share: float) -> Self:
        """Return the data set that tests on a share of each class of its training images, for
        choosing.

        The test images, on which what is chosen will be tested, are left out.
        """
        if share == 0:
            return self
        labels = self.labels()
        tested = balanced(labels, share)
        return self.chosen(np.setdiff1d(np.arange(len(labels)), tested), tested)

    def of_seed(self, seed: int, count: int, held_out: float = 0.0) -> Self:
        """Return the data set with `count` training images of a seed's own, balanced over the
        classes.

        Seeds share none, and a share of each class is in no part: `held_out` or `HELD_OUT`. With
        `held_out` these are tested on, for choosing.
        """
        labels = self.labels()
        aside = held_out or HELD_OUT
        own = part_of_seed(labels, seed, count, aside)
        return self.chosen(own, balanced(labels, aside) if held_out else None)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ImageDataset(_Parts):
    """Train and test images with their labels, small enough to keep on the device.

    >>> images, labels = np.zeros((2, 4, 4, 1), np.uint8), np.array([0, 1], np.int32)
    >>> ImageDataset("dots", images, labels, images, labels, 2)
    <dots: 2 train and 2 test images of (4, 4, 1), 2 classes>

    Args:
        name: name of the data set in configs and tables.
        train_images: uint8 [N, h, w, C], an array of NumPy or JAX.
        train_labels: int32 [N], each in [0, num_classes).
        test_images: uint8, of the same [h, w, C].
        test_labels: int32.
        num_classes: number of classes, those without examples included.
        any_channels: whether images of a height of 1, 3 or 4 may have more than 4 channels; else
            they raise InputError as arrays of another order, [N, C, h, w].
        notes: what a reader of results should know of the images; "" for none.

    Raises:
        InputError: the arrays contradict each other or this description.
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    num_classes: Annotated[int, COUNT]
    any_channels: bool = False
    notes: str = ""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if isinstance(array := getattr(self, field.name), jax.Array):
                object.__setattr__(self, field.name, np.asarray(array))
        check_fields(self)
        for split, images, labels in (
            ("train", self.train_images, self.train_labels),
            ("test", self.test_images, self.test_labels),
        ):
            self._check_split(f"{self.name} {split}", images, labels)
        if self.test_images.shape[1:] != self.image_shape:
            raise InputError(
                f"{self.name}: test images have shape {self.test_images.shape[1:]}, "
                f"train images {self.image_shape}"
            )

    def __repr__(self) -> str:
        train, test = self.sizes
        return (
            f"<{self.name}: {train:,} train and {test:,} test images of {self.image_shape}, "
            f"{self.num_classes} classes>"
        )

    def _check_split(self, split: str, images: np.ndarray, labels: np.ndarray) -> None:
        if images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
            raise InputError(
                f"{split} images are {images.dtype} of shape {images.shape}, "
                "expected uint8 of shape (examples, height, width, channels), none of them 0"
            )
        height, channels = images.shape[1], images.shape[3]
        if height in (1, 3, 4) and channels > 4 and not self.any_channels:
            raise InputError(
                f"{split} images of shape {images.shape} would be {channels} channels of height "
                f"{height}: if the axes are (examples, channels, height, width), pass "
                "images.transpose(0, 2, 3, 1), else any_channels=True"
            )
        if labels.dtype != np.int32 or labels.shape != images.shape[:1]:
            raise InputError(
                f"{split} labels are {labels.dtype} of shape {labels.shape}, "
                f"expected int32 of shape {images.shape[:1]}"
            )
        if labels.min() < 0 or labels.max() >= self.num_classes:
            raise InputError(
                f"{split} labels run from {labels.min()} to {labels.max()}, "
                f"expected 0 to {self.num_classes - 1}"
            )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of one image."""
        _, height, width, channels = self.train_images.shape
        return height, width, channels

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of training and of test examples."""
        return len(self.train_labels), len(self.test_labels)

    def labels(self) -> np.ndarray:
        return self.train_labels

    def chosen(self, train: np.ndarray, test: np.ndarray | None = None) -> Self:
        images, labels = self.train_images, self.train_labels
        changes = {"train_images": images[train], "train_labels": labels[train]}
        if test is not None:
            changes |= {"test_images": images[test], "test_labels": labels[test]}
        return dataclasses.replace(self, **changes)

    def fingerprint(self) -> str:
        """Sixteen hex digits that change when any pixel, label or shape does.

        Recorded with results, to notice when numbers from different data are compared.
        """
        digest = hashlib.sha256()
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]


@final
@dataclasses.dataclass(frozen=True)
class StreamedDataset(_Parts):
    """Encoded train and test images on disk."""

    train: ImageSource
    test: ImageSource

    @property
    def num_classes(self) -> int:
        """Number of classes, those without examples included."""
        return self.train.num_classes

    def labels(self) -> np.ndarray:
        return self.train.labels

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of training and of test examples."""
        return len(self.train), len(self.test)

    def chosen(self, train: np.ndarray, test: np.ndarray | None = None) -> Self:
        tests = self.test if test is None else Subset(self.train, test)
        return type(self)(Subset(self.train, train), tests)

    def fingerprint(self) -> str:
        """Sixteen hex digits that change when the examples, their order or their classes do.

        Of each split they depend on all images up to 512 MiB, and beyond that on an even sample of
        so much: see `sources.contents`. Reading every image of ImageNet would take hours.
        """
        return hashlib.sha256(contents(self.train, self.test)).hexdigest()[:16]


def info_of(dataset: ImageDataset) -> DatasetInfo:
    """Return what is known of arrays of one's own: sizes, and the mean and spread of colors."""
    levels, counted = np.arange(256), _level_counts(dataset.train_images)
    shares = counted / counted.sum(axis=1, keepdims=True)
    mean = shares @ levels
    std = np.sqrt((shares * (levels - mean[:, None]) ** 2).sum(axis=1))
    return DatasetInfo(
        dataset.name,
        dataset.image_shape,
        dataset.num_classes,
        *dataset.sizes,
        mean=tuple((mean / 255).tolist()),
        # A channel of one value has no spread to divide by.
        std=tuple(np.where(std > 0, std / 255, 1.0).tolist()),
        source="arrays",
    )


def _level_counts(images: np.ndarray) -> np.ndarray:
    """How many pixels of each channel have each of the 256 levels, [C, 256]."""
    counted = np.zeros((images.shape[-1], 256), np.int64)
    for batch in np.array_split(images, -(-len(images) // _PER_COUNT)):
        for channel, row in enumerate(counted):
            row += np.bincount(batch[..., channel].ravel(), minlength=256)
    return counted


def balanced(labels: np.ndarray, fraction: float) -> np.ndarray:
    """Indices of a class-balanced part, the same for every run; a smaller is a subset of a larger.

    A fraction in (0, 1] of each class is kept, rounded, at least one example.
    """
    kept = [members[: _share(fraction, len(members))] for members in _shuffled(labels)]
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.int64)


def part_of_seed(labels: np.ndarray, seed: int, count: int, aside: float) -> np.ndarray:
    """Indices of `count` images of a seed's own, as many of each class as its share of all.

    They follow on `balanced(labels, aside)`, seed by seed in the same order.

    >>> labels = np.tile(np.arange(2), 10)
    >>> [part_of_seed(labels, seed, 4, 0.2).tolist() for seed in (0, 1)]
    [[1, 4, 9, 18], [2, 6, 13, 19]]

    Raises:
        InputError: there are not so many parts.
    """
    check_parts(len(labels), [seed], count, aside)
    own = []
    for members in _shuffled(labels):
        each = _share(count / len(labels), len(members))
        first = _share(aside, len(members)) + seed * each
        own.append(members[first : first + each])
        if len(own[-1]) < each:
            raise InputError(
                f"seed {seed} has no {count:,} images of its own: a class of {len(members)} images "
                f"gives each seed {each}, and {aside:g} of it to choose learning rates on"
            )
    return np.sort(np.concatenate(own))


def check_parts(images: int, seeds: Iterable[int], count: int, aside: float) -> None:
    """Raise InputError unless each seed has `count` training images of its own, none held out."""
    parts = int((images - round(aside * images)) / count)
    if (last := max(seeds)) >= parts:
        raise InputError(
            f"seed {last} has no {count:,} images of its own: {images:,} images, of which "
            f"{aside:g} are held out, are {parts} such parts"
            + (f", of the seeds 0 to {parts - 1}" if parts else "")
        )


def _shuffled(labels: np.ndarray) -> Iterator[np.ndarray]:
    """The indices of each class, in a random order that is the same for every run."""
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        numbers = np.random.Philox(key=[_SEED, _SUBSET], counter=[0, int(label), 0, 0])
        yield members[np.argsort(numbers.random_raw(len(members)), kind="stable")]


def _share(fraction: float, members: int) -> int:
    return max(1, round(fraction * members))
