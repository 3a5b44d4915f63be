"""Reads a data set from the files that its authors published, or as TFDS prepared it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mimetic_jax.data.files import array_record
from mimetic_jax.data.home import expanded
from mimetic_jax.data.remote import hint
from mimetic_jax.data.sets.info import DatasetInfo, Split
from mimetic_jax.errors import InputError

# (files of a split, info, published number of examples) -> the split
ReadSplit = Callable[[tuple[Path, ...], DatasetInfo, int], Split]


def read_published(
    info: DatasetInfo,
    data_dir: str | None,
    *,
    train: tuple[str, ...],
    test: tuple[str, ...],
    read_split: ReadSplit,
    archive: str = "",
) -> tuple[Split, Split]:
    """The train and test split of a data set that fits into memory.

    The first of two forms that is found is read: the published files, unpacked, in `data_dir` or in
    `data_dir/FOLDER`; and `data_dir/TFDS_NAME/VERSION/` as TFDS prepares it with
    file_format="array_record" (reading that needs no TensorFlow). TFDS shuffles the examples it
    writes: they are the same, but their order differs, and so do the fingerprint and the runs.

    Args:
        info: the data set; FOLDER is its `folder`, TFDS_NAME its `tfds`.
        data_dir: the folder to look in; "~" is the home folder.
        train: names of the files of the training split.
        test: names of the files of the test split.
        read_split: reads the files of one split.
        archive: the published archive of the files; "" if they are downloaded one by one.

    Raises:
        InputError: no data_dir is given, it doesn't hold the data, or a file is missing or damaged.
    """
    files = train + test
    origin = f"unpack {archive}" if archive else f"download {' and '.join(files)}"
    sources = f"{origin} from {info.source}"
    if command := hint(info.name, data_dir):
        sources += f", or {command}"
    if info.tfds:
        sources += f', or prepare {info.tfds} by TFDS with file_format="array_record"'
    if not data_dir:
        raise InputError(
            f"{info.name} needs the folder that holds it (data_dir, or --config.data.dir=DIR): "
            f"{sources}"
        )
    root = expanded(data_dir)
    for folder in (root, root / info.folder):
        missing = [name for name in files if not (folder / name).is_file()]
        if not missing:
            return (
                read_split(tuple(folder / name for name in train), info, info.num_train),
                read_split(tuple(folder / name for name in test), info, info.num_test),
            )
        if len(missing) < len(files):
            raise InputError(
                f"{folder} lacks {', '.join(missing)}: {len(missing)} of the {len(files)} files "
                f"of {info.name}; {sources}"
            )
    if info.tfds and (prepared := array_record.find(root, info.tfds)):
        first, second = (
            array_record.read_split(prepared, split, info.name, info.image_shape)
            for split in info.splits
        )
        return first, second
    raise InputError(
        f"no {info.name} in {data_dir}{'' if root.is_dir() else ' (no such folder)'}: looked for "
        f"{files[0]} there{f' and in {info.folder}/' if info.folder else ''}"
        f"{f', and for {info.tfds}/VERSION/dataset_info.json' if info.tfds else ''}; {sources}"
    )
