"""CIFAR as TFDS prepares it: written here on a small scale, read without TensorFlow."""

import sys

import numpy as np
import pytest

from mimetic_jax.data import load_dataset
from mimetic_jax.data.files import array_record
from mimetic_jax.data.files.array_record import ArrayRecordSource
from mimetic_jax.data.files.views import decode
from tests.data.made import SIZES, examples, prepare, refused, split


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
    train, test = (data.train_images, data.train_labels), (data.test_images, data.test_labels)
    assert examples(*train) == examples(*split("train", num_classes=num_classes))
    assert examples(*test) == examples(*split("test", num_classes=num_classes))


def test_a_damaged_file_is_reported_in_one_line(tmp_path):
    folder = prepare("cifar10", tmp_path)
    source = ArrayRecordSource(folder, "test", 10)
    for path in folder.glob("*-0*"):
        path.write_bytes(path.read_bytes()[:100])
    words = "can't read cifar10 train[0] from ", "3.0.2"
    refused(lambda: load_dataset("cifar10", str(tmp_path)), *words)
    refused(lambda: source.read(0), "can't read cifar10 test[0] from")


def test_the_newest_version_is_read(tmp_path):
    old = prepare("cifar10", tmp_path)
    for path in old.glob("*train*"):
        path.unlink()
    prepare("cifar10", tmp_path, version="3.0.10")
    assert len(load_dataset("cifar10", str(tmp_path)).train_labels) == SIZES["train"]


def test_splits_in_tfds_notation_come_encoded_with_their_labels(prepared):
    folder, found = prepared / "cifar10" / "3.0.2", {}
    for part in ("train+test", "train[:3]", "train[3:]"):
        source = ArrayRecordSource(folder, part, 10)
        images, labels = zip(*map(source.read, range(len(source))), strict=True)
        found[part] = examples(np.array(list(map(decode, images))), np.array(labels))
        assert source.labels.dtype == np.int32
        assert source.labels.tolist() == list(labels)
        assert source.name(2) == f"cifar10 {part}[2]"
    train, test = (examples(*split(part)) for part in ("train", "test"))
    assert found["train+test"] == sorted(train + test)
    assert len(found["train[:3]"]) == 3
    assert sorted(found["train[:3]"] + found["train[3:]"]) == train


def test_other_classes_splits_and_formats_are_refused(tmp_path):
    folder = prepare("cifar10", tmp_path)
    words = "holds 10 classes, expected 100"
    refused(lambda: ArrayRecordSource(folder, "train", 100), words)
    words = "can't read cifar10 validation from "
    refused(lambda: ArrayRecordSource(folder, "validation", 10), words)
    description = folder / "dataset_info.json"
    description.write_text(description.read_text().replace("array_record", "tfrecord"))
    words = "tfrecord", "--file_format=array_record"
    refused(lambda: load_dataset("cifar10", str(tmp_path)), *words)


def test_labels_are_read_in_parts(prepared, monkeypatch):
    source = ArrayRecordSource(prepared / "cifar10" / "3.0.2", "train", 10)
    expected = [source.read(index)[1] for index in range(len(source))]
    monkeypatch.setattr(array_record, "_LABELS", 3)
    assert len(source) % 3
    assert source.labels.tolist() == expected
