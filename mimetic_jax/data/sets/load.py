"""Loads a published data set by name, whole or in part, into memory or to stream from disk."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.extras import need
from mimetic_jax.data.download import hint
from mimetic_jax.data.files import array_record
from mimetic_jax.data.files.open import open_source
from mimetic_jax.data.files.sources import load_all
from mimetic_jax.data.home import check_unused, expanded
from mimetic_jax.data.sets.dataset import (
    DatasetInfo,
    ImageDataset,
    Split,
    StreamedDataset,
    part,
)
from mimetic_jax.data.sets.table import describe


def load_dataset(
    name: str,
    data_dir: str | None = None,
    subset: float = 1.0,
    classes: int = 0,
) -> ImageDataset | StreamedDataset:
    """Load a data set by name.

    Of a set of arrays, the first of two forms that is found is read: the published files, unpacked,
    in `data_dir` or in `data_dir/FOLDER`; and `data_dir/TFDS_NAME/VERSION/` as TFDS prepares it
    with file_format="array_record" (reading that needs no TensorFlow). TFDS shuffles the examples
    it writes: they are the same, but their order differs, and so do the fingerprint and the runs.
    For a set of image files, see `open_source`.

    Args:
        name: one of `names()`.
        data_dir: the folder that holds it; None for one that is installed, as the digits are.
        subset: fraction of each class to train on; a smaller part is a subset of a larger one.
            The test images aren't reduced.
        classes: expected number of classes of a streamed set that isn't the published one: a
            sample, or images of one's own; 0 for the published number.

    Raises:
        InputError: the name is unknown (the error lists the known ones), no data_dir is given or
            one that isn't used, or the files are unusable.
    """
    need(f"reading {name}", "data")
    return part(_whole(describe(name), data_dir, classes), subset)


def _whole(info: DatasetInfo, data_dir: str | None, classes: int) -> ImageDataset | StreamedDataset:
    if info.included:
        check_unused(info.name, data_dir, "folder or folder_streamed")
        return _in_memory(info, *info.included())
    if info.streamed:
        info = dataclasses.replace(info, num_classes=classes or info.num_classes)
        return _sources(info, data_dir)
    if info.read:
        return _in_memory(info, *_published(info, data_dir))
    sources, size = _sources(info, data_dir), info.image_shape[0]
    splits = (load_all(source, size) for source in (sources.train, sources.test))
    return _in_memory(info, *splits)


def _in_memory(info: DatasetInfo, train: Split, test: Split) -> ImageDataset:
    return ImageDataset(info.name, *train, *test, num_classes=info.num_classes)


def _sources(info: DatasetInfo, data_dir: str | None) -> StreamedDataset:
    origin = _origin(info, data_dir)
    root, name = _given(info, data_dir, origin), info.tfds or info.name
    train, test = (
        open_source(name, root, split, info.num_classes, folder=info.folder, origin=origin)
        for split in info.splits
    )
    return StreamedDataset(train, test)


def _published(info: DatasetInfo, data_dir: str | None) -> tuple[Split, Split]:
    origin = _origin(info, data_dir)
    root = expanded(_given(info, data_dir, origin))
    files = [*info.files[0], *info.files[1]]
    for folder in (root, root / info.folder):
        missing = [name for name in files if not (folder / name).is_file()]
        if not missing:
            return _read(info, folder, 0), _read(info, folder, 1)
        if len(missing) < len(files):
            raise InputError(
                f"{folder} lacks {', '.join(missing)}: {len(missing)} of the {len(files)} files "
                f"of {info.name}; {origin}"
            )
    if info.tfds and (prepared := array_record.find(root, info.tfds)):
        train, test = (
            load_all(
                array_record.ArrayRecordSource(prepared, split, info.num_classes),
                info.image_shape[0],
            )
            for split in info.splits
        )
        return train, test
    raise InputError(
        f"no {info.name} in {data_dir}{'' if root.is_dir() else ' (no such folder)'}: looked for "
        f"{files[0]} there{f' and in {info.folder}/' if info.folder else ''}"
        f"{f', and for {info.tfds}/VERSION/dataset_info.json' if info.tfds else ''}; {origin}"
    )


def _read(info: DatasetInfo, folder: Path, split: int) -> Split:
    assert info.read is not None
    paths = [folder / name for name in info.files[split]]
    return info.read(paths, info, (info.num_train, info.num_test)[split])


def _given(info: DatasetInfo, data_dir: str | None, origin: str) -> str:
    if not data_dir:
        raise InputError(
            f"{info.name} needs the folder that holds it (data_dir, or --config.data.dir=DIR): "
            f"{origin}"
        )
    return data_dir


def _origin(info: DatasetInfo, data_dir: str | None) -> str:
    """Where the files come from, for errors."""
    commands = [hint(info.name, data_dir)]
    if info.tfds:
        commands.append(f"mimetic prepare {info.name} --data-dir={data_dir or 'DIR'}")
    ways = " or ".join(filter(None, commands))
    return f"it comes from {info.source}{ways and f': {ways}'}"
