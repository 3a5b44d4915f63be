"""Reads an image data set that TFDS prepared as array_record, with no TensorFlow in the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mimetic_jax.data.info import DatasetInfo
from mimetic_jax.errors import InputError


def find(root: Path, name: str) -> Path | None:
    """The newest `root/name/VERSION` that TFDS finished writing, or None."""
    prepared = (root / name).glob("[0-9]*.[0-9]*.[0-9]*/dataset_info.json")
    return max((path.parent for path in prepared), key=_version, default=None)


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in folder.name.split("."))


def read(folder: Path, info: DatasetInfo) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The train and test splits, each as images uint8 [N, h, w, C] and labels int32 [N].

    TFDS decodes the PNGs, by OpenCV if that is installed and by Pillow otherwise.

    Raises:
        InputError: another file format, or files that can't be read.
    """
    try:
        import tensorflow_datasets as tfds

        builder = tfds.builder_from_directory(folder)
        file_format = builder.info.file_format.value
        if file_format == "array_record":
            return {split: _read_split(builder, split, info) for split in ("train", "test")}
    except Exception as error:  # A damaged folder fails in TFDS, protobuf, array_record or the PNG.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"can't read {info.name} from {folder} ({reason})") from error
    raise InputError(
        f"{folder} holds {info.name} as {file_format}, which needs TensorFlow to read: "
        'prepare it with file_format="array_record"'
    )


def _read_split(builder: Any, split: str, info: DatasetInfo) -> tuple[np.ndarray, np.ndarray]:
    source = builder.as_data_source(split)
    images = np.empty((len(source), *info.image_shape), np.uint8)
    labels = np.empty(len(source), np.int32)
    for index, example in enumerate(source):
        image = example["image"]
        if image.shape != info.image_shape:  # Assigning would broadcast grey images.
            raise ValueError(f"image {index} has shape {image.shape}, expected {info.image_shape}")
        images[index], labels[index] = image, example["label"]
    return images, labels
