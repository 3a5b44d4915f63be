"""Loads a data set by name, whole or in part, into memory or to stream from disk."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from typing import TypeVar, final

import numpy as np

from mimetic_jax.data.files.decode import LIMITS, DecodeError, Limits
from mimetic_jax.data.files.open import open_source
from mimetic_jax.data.files.sources import ImageSource, Subset, load_all
from mimetic_jax.data.sets.dataset import ImageDataset
from mimetic_jax.data.sets.info import DatasetInfo
from mimetic_jax.data.sets.subset import SEED, balanced
from mimetic_jax.data.sets.table import describe
from mimetic_jax.errors import InputError


@final
@dataclasses.dataclass(frozen=True)
class StreamedDataset:
    """Encoded train and test images on disk."""

    train: ImageSource
    test: ImageSource

    @property
    def num_classes(self) -> int:
        """Number of classes, those without examples included."""
        return self.train.num_classes

    def fingerprint(self) -> str:
        """Sixteen hex digits that depend on all labels and on sixteen images per split.

        They change when the order, number or classes of the examples change; reading every image
        would take hours.
        """
        digest = hashlib.sha256()
        for source in (self.train, self.test):
            digest.update(np.ascontiguousarray(source.labels, np.int32).data)
            for index in np.linspace(0, len(source) - 1, 16).astype(int):
                with contextlib.suppress(DecodeError):  # training passes over it
                    digest.update(source.read(int(index))[0])
        return digest.hexdigest()[:16]


_Dataset = TypeVar("_Dataset", ImageDataset, StreamedDataset)


def load_dataset(
    name: str,
    data_dir: str | None = None,
    subset: float = 1.0,
    classes: int = 0,
    limits: Limits = LIMITS,
) -> ImageDataset | StreamedDataset:
    """Load a data set by name.

    Args:
        name: one of `names()`.
        data_dir: the folder that holds it; the digits need none.
        subset: fraction of each class to train on; a smaller part is a subset of a larger one.
            The test images aren't reduced.
        classes: expected number of classes of a streamed set that isn't the published one: a
            sample, or images of one's own; 0 for the published number.
        limits: of the size of an image.

    Raises:
        InputError: the name is unknown (the error lists the known ones), or the files are unusable.
    """
    info = describe(name)
    if info.streamed:
        info = dataclasses.replace(info, num_classes=classes or info.num_classes)
        return part(_sources(info, data_dir, limits), subset)
    return part(_resident(info, data_dir, limits), subset)


def part(dataset: _Dataset, subset: float) -> _Dataset:
    """The data set with a fraction of each class to train on; the test images aren't reduced."""
    if subset == 1:
        return dataset
    if isinstance(dataset, StreamedDataset):
        kept = balanced(dataset.train.labels, fraction=subset, seed=SEED)
        return dataclasses.replace(dataset, train=Subset(dataset.train, kept))
    kept = balanced(dataset.train_labels, fraction=subset, seed=SEED)
    return dataclasses.replace(
        dataset,
        train_images=dataset.train_images[kept],
        train_labels=dataset.train_labels[kept],
    )


def counts(dataset: ImageDataset | StreamedDataset) -> tuple[int, int]:
    """The numbers of training and of test examples."""
    if isinstance(dataset, ImageDataset):
        return len(dataset.train_labels), len(dataset.test_labels)
    return len(dataset.train), len(dataset.test)


def sized(info: DatasetInfo, dataset: ImageDataset | StreamedDataset) -> DatasetInfo:
    """The info with the numbers of examples in the loaded data set, not the published ones."""
    num_train, num_test = counts(dataset)
    return dataclasses.replace(info, num_train=num_train, num_test=num_test)


def _resident(info: DatasetInfo, data_dir: str | None, limits: Limits) -> ImageDataset:
    if info.read:
        train, test = info.read(info, data_dir)
    else:
        sources = _sources(info, data_dir, limits)
        size = info.image_shape[0]
        splits = (sources.train, sources.test)
        train, test = (load_all(source, size, limits=limits) for source in splits)
    return ImageDataset(info.name, *train, *test, num_classes=info.num_classes)


def _sources(info: DatasetInfo, data_dir: str | None, limits: Limits) -> StreamedDataset:
    if not data_dir:
        raise InputError(
            f"{info.name} needs the folder that holds it (data_dir, or --config.data.dir=DIR): "
            f"it comes from {info.source}"
        )
    train, test = (
        open_source(
            info.tfds or info.name,
            data_dir,
            split,
            info.num_classes,
            folder=info.folder,
            limits=limits,
        )
        for split in info.splits
    )
    return StreamedDataset(train, test)
