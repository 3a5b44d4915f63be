"""STL-10, its labeled images, from the original binary files or from a TFDS folder."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from mimetic_jax.data.files import array_record
from mimetic_jax.data.sets.dataset import ImageDataset
from mimetic_jax.data.sets.table import DatasetInfo, describe
from mimetic_jax.errors import InputError

_ARCHIVE, _FOLDER = "stl10_binary.tar.gz", "stl10_binary"
_FILES = ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin")


def load(data_dir: str | None) -> ImageDataset:
    """STL-10 with its published split: 5,000 train and 8,000 test images, none of the unlabeled.

    Two forms are read, the first one found: the unpacked binary archive, lying in `data_dir` or in
    its folder inside `data_dir`; and `data_dir/stl10/VERSION/` as TFDS prepares it with
    file_format="array_record" (no TensorFlow is needed to read that). TFDS shuffles what it writes:
    the examples are the same, their order and so the fingerprint and the runs aren't.

    Args:
        data_dir: the folder to look in; "~" is the home folder.

    Returns:
        The data, with labels from 0; those of the binary files start from 1.

    Raises:
        InputError: no such data there, or a file of it is missing or damaged.
    """
    info = describe("stl10")
    sources = (
        f"unpack {_ARCHIVE} from {info.source}, "
        f'or prepare {info.tfds} by TFDS with file_format="array_record"'
    )
    if not data_dir:
        raise InputError(
            f"stl10 needs the folder that holds it (data_dir, or --config.data.dir=DIR): {sources}"
        )
    root = Path(data_dir).expanduser()
    if folder := _find(root):
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise InputError(
                f"{folder} lacks {', '.join(missing)}: {len(missing)} of the {len(_FILES)} files "
                "of stl10; unpack the archive again"
            )
        splits = {
            "train": _read(folder, "train", info, info.num_train),
            "test": _read(folder, "test", info, info.num_test),
        }
    elif prepared := array_record.find(root, info.tfds):
        splits = array_record.read(prepared, info)
    else:
        raise InputError(
            f"no stl10 in {data_dir}{'' if root.is_dir() else ' (no such folder)'}: looked for "
            f"{_FILES[0]} there and in {_FOLDER}/, and for "
            f"{info.tfds}/VERSION/dataset_info.json; {sources}"
        )
    return ImageDataset(
        name="stl10",
        train_images=splits["train"][0],
        train_labels=splits["train"][1],
        test_images=splits["test"][0],
        test_labels=splits["test"][1],
        num_classes=info.num_classes,
    )


def _find(root: Path) -> Path | None:
    for folder in (root, root / _FOLDER):
        if any((folder / name).is_file() for name in _FILES):
            return folder
    return None


def _read(
    folder: Path, split: str, info: DatasetInfo, published: int
) -> tuple[np.ndarray, np.ndarray]:
    path = folder / f"{split}_X.bin"
    pixels = np.fromfile(path, np.uint8)
    labels = np.fromfile(folder / f"{split}_y.bin", np.uint8)
    size = math.prod(info.image_shape)
    if len(pixels) % size or not len(pixels):
        raise InputError(
            f"{path} holds {len(pixels)} bytes, which is not a number of images of {size}: "
            f"expected {published * size} for {published} images; unpack the archive again"
        )
    if len(labels) != len(pixels) // size:
        raise InputError(
            f"{folder / f'{split}_y.bin'} holds {len(labels)} labels for the "
            f"{len(pixels) // size} images of {path.name}"
        )
    if labels.min() < 1 or labels.max() > info.num_classes:
        raise InputError(
            f"{folder / f'{split}_y.bin'} holds labels from {labels.min()} to {labels.max()}, "
            f"expected 1 to {info.num_classes}"
        )
    height, width, channels = info.image_shape
    # One color plane after the other, each column by column.
    images = pixels.reshape(-1, channels, width, height).transpose(0, 3, 2, 1)
    return np.ascontiguousarray(images), labels.astype(np.int32) - 1
