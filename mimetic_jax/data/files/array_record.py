"""Reads an image data set that TFDS prepared as array_record, without TensorFlow."""

from __future__ import annotations

import functools
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from mimetic_jax.base.errors import InputError, error_text
from mimetic_jax.base.extras import need


def find(root: Path, name: str) -> Path | None:
    """Return the newest `root/name/VERSION` that TFDS finished writing, or None."""
    if not os.path.isdir(root / name):  # Path.is_dir and glob raise for what can't be a path
        return None
    prepared = (root / name).glob("[0-9]*.[0-9]*.[0-9]*/dataset_info.json")
    return max((path.parent for path in prepared if path.is_file()), key=_version, default=None)


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else -1 for part in folder.name.split("."))


class ArrayRecordSource:
    """The encoded images of a split of `NAME/VERSION`, read one record at a time.

    The split is in TFDS notation, such as "train+validation[:50%]".
    """

    def __init__(self, folder: Path, split: str, num_classes: int) -> None:
        self._folder = folder
        self._name = f"{folder.parent.name} {split}"
        self.num_classes = num_classes
        need(f"{self._name}, which TFDS prepared,", "tfds")
        try:
            import tensorflow_datasets as tfds

            builder = tfds.builder_from_directory(folder)
            features, found = builder.info.features, builder.info.file_format.value
            if found == "array_record":
                # Segmentation masks stay encoded, too: nothing uses them.
                encoded = {
                    name: tfds.decode.SkipDecoding()
                    for name, kind in features.items()
                    if isinstance(kind, tfds.features.Image)
                }
                self._records = builder.as_data_source(split, decoders=encoded)
        except Exception as error:
            raise self._unreadable(self._name, error) from error
        if found != "array_record":
            raise InputError(
                f"{folder} holds {self._name} as {found}, which needs TensorFlow to read: "
                "build it with --file_format=array_record"
            )
        if (classes := features["label"].num_classes) != num_classes:
            raise InputError(f"{folder} holds {classes} classes, expected {num_classes}")

    def _unreadable(self, name: str, error: Exception) -> InputError:
        """The error for damage, which shows in TFDS, protobuf or array_record."""
        return InputError(f"can't read {name} from {self._folder} ({error_text(error)})")

    def __len__(self) -> int:
        return len(self._records)

    def name(self, index: int) -> str:
        return f"{self._name}[{index}]"

    def read(self, index: int) -> tuple[bytes, int]:
        try:
            record = self._records[index]
        except Exception as error:
            raise self._unreadable(self.name(index), error) from error
        label = int(record["label"])
        if not 0 <= label < self.num_classes:  # TFDS marks an image without one by -1
            raise InputError(
                f"{self.name(index)} has label {label}, expected 0 to {self.num_classes - 1}"
            )
        return record["image"], label

    def outline(self) -> bytes:
        """Nothing: labels are in the records."""
        return b""

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """int32 [N]; the first use reads every record."""

        def read(start: int) -> list[int]:
            stop = min(start + _LABELS, len(self))
            return [self.read(index)[1] for index in range(start, stop)]

        with ThreadPoolExecutor(16) as pool:
            parts = pool.map(read, range(0, len(self), _LABELS))
            return np.fromiter(itertools.chain.from_iterable(parts), np.int32, len(self))


_LABELS = 1024
"""Labels that a task reads: a task for each would take 2 GB for ImageNet."""
