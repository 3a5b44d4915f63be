"""Files as other programs write them, and how bad ones are refused."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mimetic_jax.errors import InputError


def refused(call: Callable[[], object], *words: str) -> str:
    """The error that a call raises: of one line, with these words."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message
    return message


def encode(pixels: np.ndarray, kind: str = "JPEG", mode: str = "", **options: Any) -> bytes:
    """An image file of Pillow's."""
    file, image = io.BytesIO(), Image.fromarray(pixels)
    quality = {"quality": 90} if kind == "JPEG" else {}
    (image.convert(mode) if mode else image).save(file, kind, **quality | options)
    return file.getvalue()


def decoded(data: bytes) -> Image.Image:
    """The image as Pillow reads it."""
    return Image.open(io.BytesIO(data)).convert("RGB")


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    """A folder or link of a tar, or a file without content."""
    info = tarfile.TarInfo(name)
    # POSIX tars write an extended header for a fraction.
    info.type, info.linkname, info.mtime = kind, target, 1.5
    return info


def tar_of(
    files: Mapping[str, bytes] | list[tuple[str, bytes] | tarfile.TarInfo],
    form: int = tarfile.GNU_FORMAT,
) -> bytes:
    """A tar of these files, in their order, and of other members where they stand between them."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=form) as tar:
        for entry in files.items() if isinstance(files, Mapping) else files:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
            else:
                info = member(entry[0])
                info.size = len(entry[1])
                tar.addfile(info, io.BytesIO(entry[1]))
    return written.getvalue()


def zip_of(files: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of these files, in their order; a name that ends with a slash is a folder's."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as file:
        for name, data in files:
            file.writestr(name, data)
    return written.getvalue()


SIZES = {"train": 7, "test": 3}
"""Examples of a data set of `prepare`."""


def split(name: str, size: int = 32, num_classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of one of its splits."""
    rng = np.random.default_rng(SIZES[name])
    images = rng.integers(0, 256, (SIZES[name], size, size, 3), np.uint8)
    return images, rng.integers(0, num_classes, SIZES[name])


def examples(images: np.ndarray, labels: np.ndarray) -> list[tuple[bytes, int]]:
    """Sorted by their pixels, because TFDS shuffles while it writes."""
    return sorted(
        (image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True)
    )


def prepare(
    named: str,
    root: Path,
    size: int = 32,
    num_classes: int = 10,
    version: str = "3.0.2",
    file_format: str = "array_record",
) -> Path:
    """A data set under any name, written by a builder of TFDS's that needs no TensorFlow."""
    import tensorflow_datasets as tfds

    # TFDS knows a cifar10 of its own, which needs TensorFlow to prepare.
    with tfds.core.registered.skip_registration():

        class Builder(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version(version)
            name = named

            def _info(self) -> Any:
                features = {
                    "image": tfds.features.Image(shape=(size, size, 3)),
                    "label": tfds.features.ClassLabel(num_classes=num_classes),
                }
                return tfds.core.DatasetInfo(
                    builder=self, features=tfds.features.FeaturesDict(features)
                )

            def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
                return {part: self._generate_examples(part) for part in SIZES}

            def _generate_examples(self, part: str) -> Iterator[tuple[int, dict[str, Any]]]:
                of_part = zip(*split(part, size, num_classes), strict=True)
                for index, (image, label) in enumerate(of_part):
                    file = io.BytesIO(encode(image, "PNG"))
                    yield index, {"image": file, "label": int(label)}

    Builder(data_dir=root, file_format="array_record").download_and_prepare()
    folder = root / named / version
    description = folder / "dataset_info.json"
    description.write_text(description.read_text().replace("array_record", file_format))
    return folder
