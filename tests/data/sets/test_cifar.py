"""CIFAR: converted when it is downloaded, read as arrays, damaged."""

import os
import pickle

import numpy as np
import pytest

from mimetic_jax.data import ImageDataset, describe, load_dataset
from mimetic_jax.data.download import cifar_arrays
from tests.data.made import refused

FILES = {
    "cifar10": ("cifar-10-batches-py", [f"data_batch_{n}" for n in range(1, 6)], ["test_batch"]),
    "cifar100": ("cifar-100-python", ["train"], ["test"]),
}
NAMES = tuple(FILES)
EACH = 6
"""Images per file."""


def made_up(name: str, file: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [6, h, w, 3] and labels from 0 of a file that holds images."""
    info = describe(name)
    rng = np.random.default_rng(len(file) + ord(file[-1]))
    shape = (EACH, *info.image_shape)
    return rng.integers(0, 256, shape, np.uint8), rng.integers(0, info.num_classes, EACH)


def written(name: str, file: str) -> bytes:
    """As published: of protocol 2, with keys and a row of color planes for each image in bytes."""
    images, labels = made_up(name, file)
    key = b"fine_labels" if name == "cifar100" else b"labels"
    rows = images.transpose(0, 3, 1, 2).reshape(EACH, -1)
    content = {b"data": rows, key: labels.tolist(), b"coarse_labels": [0] * EACH}
    return pickle.dumps(content, protocol=2)


def arrays(name: str) -> dict[str, np.ndarray]:
    """What is stored of it."""
    found = {}
    for part, files in zip(("train", "test"), FILES[name][1:], strict=True):
        images, labels = zip(*(made_up(name, file) for file in files), strict=True)
        found[f"{part}_images"] = np.concatenate(images)
        found[f"{part}_labels"] = np.concatenate(labels).astype(np.int32)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_published_files_become_arrays(tmp_path, name):
    folder, *parts = FILES[name]
    (tmp_path / folder).mkdir()
    for file in (*parts[0], *parts[1]):
        (tmp_path / folder / file).write_bytes(written(name, file))
        (tmp_path / folder / f"{file}.old").write_bytes(b"")
    found, expected = cifar_arrays(tmp_path), arrays(name)
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array)
        assert found[key].dtype == array.dtype


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_is_read(tmp_path, name):
    np.savez(tmp_path / f"{name}.npz", **arrays(name))
    data = load_dataset(name, str(tmp_path))
    assert isinstance(data, ImageDataset)
    assert data.num_classes == describe(name).num_classes
    for key, expected in arrays(name).items():
        np.testing.assert_array_equal(getattr(data, key), expected)


def test_what_is_missing_is_named_with_its_origin(tmp_path):
    origin = [describe("cifar10").source, "mimetic download cifar10 --data-dir=", "tfds build cif"]
    refused(lambda: load_dataset("cifar10", None), "data_dir", *origin)
    searched = ["nowhere (no such folder)", "cifar10.npz", "cifar10/VERSION", *origin]
    refused(lambda: load_dataset("cifar10", str(tmp_path / "nowhere")), *searched)
    refused(lambda: load_dataset("cifar10", str(tmp_path)), "no cifar10 in", *origin)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"test_labels": None}, ["test_labels", "download it again"]),
        ({"train_images": np.zeros((30, 32, 31, 3), np.uint8)}, ["(32, 31, 3)", "32, 32, 3"]),
        ({"train_images": np.zeros((30, 32, 32, 3), np.float32)}, ["float32", "uint8"]),
        ({"train_labels": np.zeros(29, np.int32)}, ["labels are int32 of shape (29,)"]),
        ({"train_labels": np.full(30, 10, np.int32)}, ["labels run from 10 to 10, expected 0 to"]),
        ({"train_labels": np.full(30, 0.5)}, ["float64"]),
        ({"train_labels": np.array([{}] * 30)}, ["Object arrays cannot be loaded"]),  # no pickles
    ],
)
def test_a_file_that_contradicts_itself_is_named(tmp_path, change, words):
    stored = {k: v for k, v in (arrays("cifar10") | change).items() if v is not None}
    np.savez(tmp_path / "cifar10.npz", **stored)
    refused(lambda: load_dataset("cifar10", str(tmp_path)), *words)


@pytest.mark.parametrize("content", [b"", b"<html>\n<body>404</body>", b"PK\3\4" + b"\0" * 60])
def test_other_bytes_are_named_with_their_size(tmp_path, content):
    path = tmp_path / "cifar10.npz"
    path.write_bytes(content)
    words = (str(path), f"{len(content)} bytes", "download it again")
    refused(lambda: load_dataset("cifar10", str(tmp_path)), *words)


@pytest.mark.parametrize("name", NAMES)
def test_the_real_files(name):
    folder = os.environ.get(f"MIMETIC_{name.upper()}_DIR")
    if not folder:
        pytest.skip(f"MIMETIC_{name.upper()}_DIR isn't set to a folder with {name}")
    data, info = load_dataset(name, folder), describe(name)
    assert isinstance(data, ImageDataset)
    assert (len(data.train_labels), len(data.test_labels)) == (info.num_train, info.num_test)
    counts = np.bincount(data.train_labels)
    assert counts.tolist() == [info.num_train // info.num_classes] * info.num_classes
    pixels = data.train_images.reshape(-1, 3) / np.float32(255)
    np.testing.assert_allclose(pixels.mean(0, dtype=np.float64), info.mean, atol=1e-4)
    np.testing.assert_allclose(pixels.std(0, dtype=np.float64), info.std, atol=1e-4)
