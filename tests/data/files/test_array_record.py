"""CIFAR as TFDS prepares it: written here on a small scale, read without TensorFlow."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mimetic_jax.base.errors import InputError
from mimetic_jax.data import load_dataset
from mimetic_jax.data.files.array_record import ArrayRecordSource
from mimetic_jax.data.files.views import decode
from tests.data.made import SIZES, examples, prepare, split


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root = tmp_path_factory.mktemp("tfds")
    for num_classes in (10, 100):
        prepare(f"cifar{num_classes}", root, num_classes=num_classes)
    return root


@pytest.mark.parametrize("num_classes", [10, 100])
def test_what_tfds_wrote_is_read(prepared, num_classes):
    before = "tensorflow" in sys.modules
    data = load_dataset(f"cifar{num_classes}", str(prepared))
    assert ("tensorflow" in sys.modules) == before
    assert data.num_classes == num_classes
    for part, images, labels in (
        ("train", data.train_images, data.train_labels),
        ("test", data.test_images, data.test_labels),
    ):
        assert examples(images, labels) == examples(*split(part, num_classes=num_classes))


def test_a_damaged_file_is_reported_in_one_line(tmp_path):
    folder = prepare("cifar10", tmp_path)
    source = ArrayRecordSource(folder, "test", 10)
    for path in folder.glob("*-0*"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"can't read cifar10 train\[0\] from .*3\.0\.2"):
        load_dataset("cifar10", str(tmp_path))
    with pytest.raises(InputError, match=r"can't read cifar10 test\[0\] from"):
        source.read(0)


def test_the_newest_version_is_read(tmp_path):
    old = prepare("cifar10", tmp_path)
    for path in old.glob("*train*"):
        path.unlink()
    prepare("cifar10", tmp_path, version="3.0.10")
    assert len(load_dataset("cifar10", str(tmp_path)).train_labels) == SIZES["train"]


def decoded(source: ArrayRecordSource) -> tuple[np.ndarray, np.ndarray]:
    with ThreadPoolExecutor(4) as pool:
        records = list(pool.map(source.read, range(len(source))))
    images = np.array([decode(data) for data, _ in records])
    return images, np.array([label for _, label in records])


def test_encoded_images_come_with_their_labels(prepared):
    before = "tensorflow" in sys.modules
    source = ArrayRecordSource(prepared / "cifar10" / "3.0.2", "train", 10)
    images, labels = decoded(source)
    assert examples(images, labels) == examples(*split("train"))
    assert source.labels.dtype == np.int32
    assert np.array_equal(source.labels, labels)
    assert source.num_classes == 10
    assert source.name(3) == "cifar10 train[3]"
    assert ("tensorflow" in sys.modules) == before


def test_splits_in_tfds_notation(prepared):
    folder = prepared / "cifar10" / "3.0.2"
    whole = examples(*decoded(ArrayRecordSource(folder, "train+test", 10)))
    both = (np.concatenate(pair) for pair in zip(split("train"), split("test"), strict=True))
    assert whole == examples(*both)
    first = decoded(ArrayRecordSource(folder, "train[:3]", 10))
    rest = decoded(ArrayRecordSource(folder, "train[3:]", 10))
    assert len(first[1]) == 3
    joined = (np.concatenate(pair) for pair in zip(first, rest, strict=True))
    assert examples(*joined) == examples(*split("train"))


def test_other_classes_splits_and_formats_are_refused(tmp_path):
    folder = prepare("cifar10", tmp_path)
    with pytest.raises(InputError, match="holds 10 classes, expected 100"):
        ArrayRecordSource(folder, "train", 100)
    with pytest.raises(InputError, match=r"can't read cifar10 validation from .*train"):
        ArrayRecordSource(folder, "validation", 10)
    description = folder / "dataset_info.json"
    description.write_text(description.read_text().replace("array_record", "tfrecord"))
    for read in (
        lambda: ArrayRecordSource(folder, "train", 10),
        lambda: load_dataset("cifar10", str(tmp_path)),
    ):
        with pytest.raises(InputError, match=r"tfrecord.*--file_format=array_record"):
            read()
