"""CIFAR as TFDS prepares it: written here on a small scale, read without TensorFlow."""

import io
import pickle
import struct
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mimetic_jax.data import load_dataset
from mimetic_jax.data.files.array_record import ArrayRecordSource
from mimetic_jax.data.files.decode import decode
from mimetic_jax.data.files.open import open_source
from mimetic_jax.errors import InputError

SIZES = {"train": 7, "test": 3}


def png(image: np.ndarray) -> bytes:
    """A PNG of an RGB image, so that the test depends on no image library to write one."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    height, width, _ = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def split(name: str, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(SIZES[name])
    images = rng.integers(0, 256, (SIZES[name], 32, 32, 3), np.uint8)
    return images, rng.integers(0, num_classes, SIZES[name])


def prepare(data_dir: Path, num_classes: int, version: str = "3.0.2") -> Path:
    """A data set named as TFDS names it, written by a builder that needs no TensorFlow."""
    import tensorflow_datasets as tfds

    # TFDS knows a cifar10 of its own, which needs TensorFlow to prepare.
    with tfds.core.registered.skip_registration():

        class Builder(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version(version)
            name = f"cifar{num_classes}"

            def _info(self) -> Any:
                features = {
                    "image": tfds.features.Image(shape=(32, 32, 3)),
                    "label": tfds.features.ClassLabel(num_classes=num_classes),
                }
                return tfds.core.DatasetInfo(
                    builder=self, features=tfds.features.FeaturesDict(features)
                )

            def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
                return {name: self._generate_examples(name) for name in SIZES}

            def _generate_examples(self, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
                for index, (image, label) in enumerate(zip(*split(name, num_classes), strict=True)):
                    yield index, {"image": io.BytesIO(png(image)), "label": int(label)}

    Builder(data_dir=data_dir, file_format="array_record").download_and_prepare()
    return data_dir / Builder.name / version


def by_pixels(images: np.ndarray, labels: np.ndarray) -> list[tuple[bytes, int]]:
    """The examples sorted by their pixels, because TFDS shuffles while it writes."""
    return sorted(
        (image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True)
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("tfds")
    prepare(data_dir, 10)
    prepare(data_dir, 100)
    return data_dir


@pytest.mark.parametrize("num_classes", [10, 100])
def test_what_tfds_wrote_is_read(prepared: Path, num_classes: int) -> None:
    before = "tensorflow" in sys.modules
    data = load_dataset(f"cifar{num_classes}", str(prepared))
    assert ("tensorflow" in sys.modules) == before
    assert data.num_classes == num_classes
    assert by_pixels(data.train_images, data.train_labels) == by_pixels(
        *split("train", num_classes)
    )
    assert by_pixels(data.test_images, data.test_labels) == by_pixels(*split("test", num_classes))


def test_a_damaged_file_is_reported_in_one_line(tmp_path: Path) -> None:
    folder = prepare(tmp_path, 10)
    for path in folder.glob("*train*"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"can't read cifar10 from .*3\.0\.2") as caught:
        load_dataset("cifar10", str(tmp_path))
    assert "\n" not in str(caught.value)


def test_the_error_for_another_file_format_names_the_right_one(tmp_path: Path) -> None:
    description = prepare(tmp_path, 10) / "dataset_info.json"
    description.write_text(description.read_text().replace("array_record", "tfrecord"))
    with pytest.raises(InputError, match=r'tfrecord.*file_format="array_record"'):
        load_dataset("cifar10", str(tmp_path))


def test_the_newest_version_is_read(tmp_path: Path) -> None:
    old = prepare(tmp_path, 10, "3.0.2")
    for path in old.glob("*train*"):
        path.unlink()
    prepare(tmp_path, 10, "3.0.10")
    assert len(load_dataset("cifar10", str(tmp_path)).train_labels) == SIZES["train"]


def decoded(source: ArrayRecordSource) -> tuple[np.ndarray, np.ndarray]:
    with ThreadPoolExecutor(4) as pool:
        records = list(pool.map(source.read, range(len(source))))
    images = np.array([decode(data) for data, _ in records])
    return images, np.array([label for _, label in records])


@pytest.mark.parametrize("copied", [False, True])
def test_encoded_images_come_with_their_labels(prepared: Path, copied: bool) -> None:
    before = "tensorflow" in sys.modules
    source = open_source("cifar10", str(prepared), "train", 10)
    assert isinstance(source, ArrayRecordSource)
    if copied:
        source = pickle.loads(pickle.dumps(source))
    images, labels = decoded(source)
    assert by_pixels(images, labels) == by_pixels(*split("train", 10))
    assert source.labels.dtype == np.int32
    assert np.array_equal(source.labels, labels)
    assert source.num_classes == 10
    assert source.name(3) == "cifar10 train[3]"
    assert ("tensorflow" in sys.modules) == before


def test_splits_in_tfds_notation(prepared: Path) -> None:
    folder = prepared / "cifar10" / "3.0.2"
    whole = by_pixels(*decoded(ArrayRecordSource(folder, "train+test", 10)))
    both = (
        np.concatenate(pair) for pair in zip(split("train", 10), split("test", 10), strict=True)
    )
    assert whole == by_pixels(*both)
    first = decoded(ArrayRecordSource(folder, "train[:3]", 10))
    rest = decoded(ArrayRecordSource(folder, "train[3:]", 10))
    assert len(first[1]) == 3
    joined = (np.concatenate(pair) for pair in zip(first, rest, strict=True))
    assert by_pixels(*joined) == by_pixels(*split("train", 10))


def test_other_classes_splits_and_formats_are_refused(tmp_path: Path) -> None:
    folder = prepare(tmp_path, 10)
    with pytest.raises(InputError, match="holds 10 classes, expected 100"):
        ArrayRecordSource(folder, "train", 100)
    with pytest.raises(InputError, match=r"can't read cifar10 validation from .*train") as caught:
        ArrayRecordSource(folder, "validation", 10)
    assert "\n" not in str(caught.value)
    description = folder / "dataset_info.json"
    description.write_text(description.read_text().replace("array_record", "tfrecord"))
    with pytest.raises(InputError, match=r'tfrecord.*file_format="array_record"'):
        ArrayRecordSource(folder, "train", 10)


def test_the_error_for_a_damaged_record_names_it(tmp_path: Path) -> None:
    folder = prepare(tmp_path, 10)
    source = ArrayRecordSource(folder, "test", 10)
    for path in folder.glob("*test*"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"can't read cifar10 test\[0\] from"):
        source.read(0)
