"""Loads images, published by name or one's own, into memory or to stream from disk."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.extras import need
from mimetic_jax.data.download import hint, unpacked_in
from mimetic_jax.data.files import array_record
from mimetic_jax.data.files.class_folders import ClassFolders
from mimetic_jax.data.files.sources import ImageSource, Subset, load_all
from mimetic_jax.data.files.views import CropSpec
from mimetic_jax.data.paths import check_exists, describe_skipped, local_path, name_of
from mimetic_jax.data.sets.dataset import DatasetInfo, ImageDataset, StreamedDataset, balanced
from mimetic_jax.data.sets.readers import read_arrays
from mimetic_jax.data.sets.table import describe

OWN_SIDES = {"folder": 64, "folder_streamed": 224}
"""Pixels of a side of one's own images unless configured: held in memory, or read in training."""

_TESTS = ("test", "validation")  # the first that is there
_TRAIN_SHARE = 0.9  # of each class, if there is neither


def load_dataset(
    name: str, data_dir: str | None = None, classes: int = 0
) -> ImageDataset | StreamedDataset:
    """Load a published data set by name.

    The first of these that is found is read:

    1. the published files of arrays, unpacked, in `data_dir` or in `data_dir/FOLDER`;
    2. `data_dir/TFDS_NAME/VERSION/` as TFDS prepares it with file_format="array_record" (reading
       that needs no TensorFlow). TFDS shuffles the examples it writes: they are the same, but
       their order differs, and so do the fingerprint and the runs;
    3. a tree `train/CLASS/...`, in `data_dir/TFDS_NAME`, `data_dir/FOLDER` or `data_dir` itself;
       see `ClassFolders`.

    A streamed set that isn't the published one, such as a sample, may have other `classes`.
    """
    info = describe(name, data_dir)
    need(f"reading {name}", "data")
    if info.included:
        train, test = info.included()
        return ImageDataset(name, *train, *test, info.num_classes)
    if not data_dir:
        raise InputError(
            f"{name} needs the folder that holds it (data_dir, or --config.data.dir=DIR): "
            f"{_origin(info, 'DIR')}"
        )
    root = _folder(data_dir)
    if info.arrays and (path := root / f"{name}.npz").is_file():
        train, test = read_arrays(path, info)
        return ImageDataset(name, *train, *test, info.num_classes)
    sources = _sources(info, root, (info.streamed and classes) or info.num_classes)
    side, _, channels = info.image_shape
    view = CropSpec(side, channels=channels)
    return sources if info.streamed else _in_memory(name, sources, view)


def describe_own(
    name: str,
    data_dir: str | None,
    size: int,
    dataset: ImageDataset | StreamedDataset | None = None,
) -> DatasetInfo:
    """Return what is known of one's own images without decoding one: their number and their
    classes.

    Takes what `load_own` takes, and the images if they are loaded; otherwise files are listed.
    """
    path, side = _own_path(name, data_dir), size or OWN_SIDES[name]
    notes = getattr(dataset, "notes", "")
    if dataset is None:
        tree = _own_folders(path, name)
        dataset, notes = _own_sources(tree), describe_skipped(tree.unread)
    return DatasetInfo(
        name_of(path),
        (side, side, 3),
        dataset.num_classes,
        *dataset.sizes,
        source=str(data_dir),
        streamed=name == "folder_streamed",
        notes=notes,
    )


def load_own(name: str, data_dir: str | None, size: int) -> ImageDataset | StreamedDataset:
    """Load images of one's own from class folders, see `ClassFolders`.

    If there is no test split, the validation split is tested on; with both, its images aren't
    used. If there is neither, a tenth of each class is held out, always the same images:
    rounded, hence none of a class of fewer than five. An image counts once: links are followed,
    and copies left out where images are held in memory.
    """
    need("reading images", "data")
    path = _own_path(name, data_dir)
    sources = _own_sources(_own_folders(path, name))
    streamed = name == "folder_streamed"
    view = CropSpec(size or OWN_SIDES[name], upright=True)
    return sources if streamed else _in_memory(name_of(path), sources, view)


def _in_memory(name: str, sources: StreamedDataset, view: CropSpec) -> ImageDataset:
    (train, test), notes = load_all((sources.train, sources.test), view)
    return ImageDataset(name, *train, *test, sources.num_classes, notes=notes)


def _sources(info: DatasetInfo, root: Path, num_classes: int) -> StreamedDataset:
    """The encoded images: as TFDS prepared them, or in class folders."""
    name = info.tfds or info.name
    if prepared := array_record.find(root, name):
        return StreamedDataset(
            *(array_record.ArrayRecordSource(prepared, part, num_classes) for part in info.splits)
        )
    names = (name, info.folder) if info.folder else (name,)
    for folder in (*(root / name for name in names), root):
        if any((folder / split).is_dir() for split in ("train", "val", "validation", "test")):
            tree = ClassFolders(folder)
            return StreamedDataset(*(_checked(tree, part, num_classes) for part in info.splits))
    files = [f"{name}/VERSION/dataset_info.json (TFDS)"]
    files += [f"{name}/train/" for name in names] + ["train/"]
    if info.arrays:
        files = [f"{info.name}.npz", *files]
    raise InputError(
        f"no {info.name} in {root}{'' if root.is_dir() else ' (no such folder)'}: looked for "
        f"{', '.join(files)}; {_origin(info, str(root))}"
    )


def _checked(tree: ClassFolders, split: str, num_classes: int) -> ImageSource:
    source = tree.source(split)
    if source.num_classes != num_classes:
        raise InputError(
            f"{tree.path} holds {source.num_classes} classes, expected {num_classes}: "
            f"{', '.join(source.classes[:3])}, ... (for a sample, set data.classes)"
        )
    return source


def _origin(info: DatasetInfo, data_dir: str) -> str:
    """Where the files come from, for errors."""
    commands = [hint(info.name, data_dir)]
    if info.tfds:
        commands.append(f"tfds build {info.tfds} --file_format=array_record --data_dir={data_dir}")
    ways = " or ".join(filter(None, commands))
    return f"it comes from {info.source}{ways and f': {ways}'}"


def _own_path(name: str, data_dir: str | None) -> Path:
    if not data_dir:
        raise InputError(
            f"{name} needs your images. Pass --data-dir=FOLDER with FOLDER/CLASS/IMAGE in it."
        )
    return check_exists(_folder(data_dir))


def _own_folders(path: Path, name: str) -> ClassFolders:
    try:
        tree = ClassFolders(path)
        # Files that stream may be too many to compare their bytes.
        tree.count_once(_inode if name == "folder_streamed" else None)
        return tree
    except InputError as error:
        if name := unpacked_in(path):
            raise InputError(
                f"{error}, but the files of {name}: {hint(name, str(path))}, and train with "
                f"--config.data.name={name}"
            ) from error
        raise


def _inode(file: Path) -> Hashable:
    found = file.stat() if file.exists() else None
    return (found.st_dev, found.st_ino) if found else file


def _folder(data_dir: str) -> Path:
    path = local_path(data_dir)
    if path.is_file():
        raise InputError(f"{path} is a file; pass a folder of images, unpacked if it is an archive")
    return path


def _own_sources(tree: ClassFolders) -> StreamedDataset:
    train = tree.source("train")
    if test := next((split for split in _TESTS if split in tree.splits), None):
        return StreamedDataset(train, tree.source(test))
    kept = balanced(train.labels, _TRAIN_SHARE)
    tested = np.setdiff1d(np.arange(len(train)), kept)
    if not tested.size:
        raise InputError(
            f"{tree.path} has no test split, and its {train.num_classes} classes have too few "
            f"images ({len(train)} in all) to hold a tenth of them out"
        )
    return StreamedDataset(Subset(train, kept), Subset(train, tested))
