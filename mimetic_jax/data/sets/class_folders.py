"""Images of one's own: class folders, with a test split or without."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.extras import need
from mimetic_jax.data.files.folder import Folder
from mimetic_jax.data.files.layout import other_files, splits_of
from mimetic_jax.data.files.open import check_unpacked
from mimetic_jax.data.files.sources import Subset, file_source, load_all
from mimetic_jax.data.home import existing, expanded, name_of
from mimetic_jax.data.sets.dataset import (
    SEED,
    DatasetInfo,
    ImageDataset,
    StreamedDataset,
    balanced,
    counts,
    part,
)
from mimetic_jax.data.sets.table import IMAGENET_MEAN, IMAGENET_STD

SIDES = {"folder": 64, "folder_streamed": 224}
"""Pixels of a side unless configured, by name: held in memory, or read while training."""

_TESTS = ("test", "validation")  # the first that is there
_TRAIN_SHARE = 0.9  # of each class, where there is no test split


def describe_own(
    name: str,
    data_dir: str | None,
    size: int,
    dataset: ImageDataset | StreamedDataset | None = None,
) -> DatasetInfo:
    """What is known of the images without decoding one: their number and their classes.

    Args:
        name, data_dir, size: as `load_own`.
        dataset: the images if they are loaded; otherwise the files are listed.

    Raises:
        InputError: as `load_own`.
    """
    left_out = ""
    if dataset is None:
        tree = _tree(name, data_dir)
        left_out, dataset = other_files(tree), _sources(tree)
    side = size or SIDES[name]
    return DatasetInfo(
        name_of(_path(name, data_dir)),
        (side, side, 3),
        dataset.num_classes,
        *counts(dataset),
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        source=str(data_dir),
        streamed=name == "folder_streamed",
        left_out=left_out,
    )


def load_own(
    name: str,
    data_dir: str | None,
    size: int,
    subset: float = 1.0,
) -> ImageDataset | StreamedDataset:
    """Load images of one's own.

    The class of an image is its folder: `train/CLASS/...` and `test/CLASS/...`, or `CLASS/...`
    without splits, see `layout.find_split`. Where there is no test split, the validation split is
    tested on; with both, its images aren't used. Where there is neither, a tenth of each class is
    held out, always the same images: rounded, hence none of a class of fewer than five.

    Args:
        name: "folder" to hold the images in memory, as squares of `size` pixels; or
            "folder_streamed" to decode them while training.
        data_dir: a folder; "~" is the home folder.
        size: side of the images in pixels; 0 for 64, or 224 where they are streamed.
        subset: fraction of each class to train on.

    Raises:
        InputError: there are no such files, they aren't in class folders, or too few are there to
            hold any out.
    """
    need("reading images", "data")
    sources = part(_sources(_tree(name, data_dir)), subset)
    if name == "folder_streamed":
        return sources
    side = size or SIDES[name]
    train, test = (load_all(source, side) for source in (sources.train, sources.test))
    name = name_of(_path(name, data_dir))
    return ImageDataset(name, *train, *test, num_classes=sources.num_classes)


def _path(name: str, data_dir: str | None) -> Path:
    if not data_dir:
        raise InputError(
            f"{name} needs your images: --config.data.dir=FOLDER, with CLASS/IMAGE in it"
        )
    found = existing(expanded(data_dir))
    check_unpacked(found)
    return found


def _tree(name: str, data_dir: str | None) -> Folder:
    return Folder(_path(name, data_dir))


def _sources(tree: Folder) -> StreamedDataset:
    splits = splits_of(tree)
    train = file_source(tree, "train")
    if test := next((split for split in _TESTS if split in splits), None):
        return StreamedDataset(train, file_source(tree, test))
    kept = balanced(train.labels, fraction=_TRAIN_SHARE, seed=SEED)
    held_out = np.setdiff1d(np.arange(len(train)), kept)
    if not held_out.size:
        raise InputError(
            f"{tree.path} has no test split, and its {train.num_classes} classes have too few "
            f"images ({len(train)} in all) to hold a tenth of them out"
        )
    return StreamedDataset(Subset(train, kept), Subset(train, held_out))
