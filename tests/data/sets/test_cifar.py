"""CIFAR's pickles: read as written, of every protocol, damaged, and made to harm."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mimetic_jax.data import ImageDataset, describe, load_dataset
from tests.data import made

FILES = {
    "cifar10": ([f"data_batch_{number}" for number in range(1, 6)], ["test_batch"]),
    "cifar100": (["train"], ["test"]),
}
NAMES = tuple(FILES)
EACH = 6
"""Images per file."""


def refused(name: str, data_dir: Path | None, *words: str) -> None:
    """Loading it raises an error of one line that has all the words."""
    made.refused(lambda: load_dataset(name, data_dir and str(data_dir)), *words)


def made_up(name: str, file: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [6, h, w, 3] and labels from 0 of a file that holds images."""
    info = describe(name)
    rng = np.random.default_rng(len(file) + ord(file[-1]))
    shape = (EACH, *info.image_shape)
    return rng.integers(0, 256, shape, np.uint8), rng.integers(0, info.num_classes, EACH)


def splits(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """What the train and the test files hold."""
    found = []
    for files in FILES[name]:
        parts = [made_up(name, file) for file in files]
        found.append(tuple(np.concatenate(part) for part in zip(*parts, strict=True)))
    return found


def write(name: str, folder: Path, **changes: Any) -> None:
    """Write all files; `changes` replace arrays of the last training file, as it stores them."""
    folder.mkdir(parents=True, exist_ok=True)
    train, test = FILES[name]
    for file in (*train, *test):
        replaced = changes if file == train[-1] else {}
        images, labels = made_up(name, file)
        key = b"fine_labels" if name == "cifar100" else b"labels"
        content = {
            b"data": images.transpose(0, 3, 1, 2).reshape(EACH, -1),  # plane by plane
            key: labels.tolist(),
            b"coarse_labels": [0] * EACH,
        }
        replaced = {field.encode(): value for field, value in replaced.items()}
        content = {k: v for k, v in (content | replaced).items() if v is not None}
        (folder / file).write_bytes(pickle.dumps(content, protocol=4))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("inside", [True, False])
def test_what_is_written_is_read(tmp_path, name, inside):
    """In the folder itself, and in the published folder below it."""
    write(name, tmp_path / describe(name).folder)
    data = load_dataset(name, str(tmp_path if inside else tmp_path / describe(name).folder))
    (images, labels), (test_images, test_labels) = splits(name)
    assert isinstance(data, ImageDataset)
    assert data.num_classes == describe(name).num_classes
    assert data.train_labels.tolist() == labels.tolist()
    assert data.test_labels.tolist() == test_labels.tolist()
    np.testing.assert_array_equal(data.train_images, images)
    np.testing.assert_array_equal(data.test_images, test_images)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_is_named_with_its_origin(tmp_path, name):
    info = describe(name)
    commands = [f"mimetic download {name} --data-dir=", f"tfds build {info.tfds} --file_format="]
    origin = [info.source, *commands]
    files = [*FILES[name][0], *FILES[name][1]]
    refused(name, None, "data_dir", *origin)
    searched = [f"{info.folder}/", f"{info.tfds}/VERSION", *origin]
    refused(name, tmp_path / "nowhere", "nowhere (no such folder)", *searched)
    refused(name, tmp_path, f"no {name} in", *origin)
    write(name, tmp_path)
    (tmp_path / files[-1]).unlink()
    words = f"lacks {files[-1]}: 1 of the {len(files)} files of {name}"
    refused(name, tmp_path, words, info.source)


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_file_and_other_bytes_are_named_with_their_size(tmp_path, name):
    write(name, tmp_path)
    info = describe(name)
    path = tmp_path / FILES[name][0][0]
    whole, published = path.read_bytes(), info.num_train // (5 if name == "cifar10" else 1)
    truncated = [whole[:kept] for kept in (0, 1, 200, 10_000)]
    for content in (*truncated, b"no pickle at all\n", b"<html>\n<body>404</body>", b"\xff" * 64):
        path.write_bytes(content)
        refused(name, tmp_path, path.name, f"{len(content)} bytes", f"{published} images")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": None}, ["KeyError: 'labels'"]),
        ({"data": np.zeros((6, 3071), np.uint8)}, ["(6, 3071)", "3072"]),
        ({"data": np.zeros((0, 3072), np.uint8)}, ["(0, 3072)"]),
        ({"data": np.zeros((6, 3072), np.float32)}, ["float32 (6, 3072)", "uint8"]),
        ({"data": [1, 2]}, ["data_batch_5 holds pixels as list (2,)"]),
        ({"labels": [0] * 5}, ["data_batch_5 holds 5 images, expected 6 as in data_batch_1"]),
        ({"labels": [0, 1, 2, 3, 4, 10]}, ["train labels run from 0 to 10, expected 0 to 9"]),
        ({"labels": [0.5] * 6}, ["data_batch_5", "float64"]),
    ],
)
def test_a_file_that_contradicts_itself_is_named(tmp_path, change, words):
    write("cifar10", tmp_path, **change)
    refused("cifar10", tmp_path, *words)


def write_cifar(folder: Path) -> dict[str, dict[bytes, Any]]:
    """Made-up batches, and what was written by file."""
    write("cifar10", folder)
    return {path.name: pickle.loads(path.read_bytes()) for path in sorted(folder.iterdir())}


def test_a_pickle_of_python_2_is_read(tmp_path):
    """The published files are of protocol 2, with byte strings that Python 3 no longer writes."""
    folder = tmp_path / "cifar-10-batches-py"
    written = write_cifar(folder)
    pixels, labels = written["test_batch"][b"data"], written["test_batch"][b"labels"]

    def text(value: bytes) -> bytes:
        return b"T" + len(value).to_bytes(4, "little") + value

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    array = b"".join(
        [
            b"cnumpy.core.multiarray\n_reconstruct\n",
            b"(cnumpy\nndarray\n",
            b"(" + number(0) + b"t" + text(b"b") + b"tR",
            b"(" + number(1) + b"(" + number(EACH) + number(3072) + b"t",
            b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR",
            b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb",
            b"\x89" + text(pixels.tobytes()) + b"tb",
        ]
    )
    numbers = b"](" + b"".join(number(label) for label in labels) + b"e"
    (folder / "test_batch").write_bytes(
        b"\x80\x02}(" + text(b"data") + array + text(b"labels") + numbers + b"u."
    )
    data = load_dataset("cifar10", str(tmp_path))
    assert data.test_labels.tolist() == labels
    assert np.array_equal(data.test_images[2, :, :, 1].ravel(), pixels[2, 1024:2048])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("text_keys", [False, True])
def test_every_protocol_of_python_3_is_read(tmp_path, protocol, text_keys):
    """As a notebook writes the files again; keys are text where they were read as latin1."""
    written = write_cifar(tmp_path)
    for file, content in written.items():
        again = {key.decode() if text_keys else key: value for key, value in content.items()}
        (tmp_path / file).write_bytes(pickle.dumps(again, protocol=protocol))
    data = load_dataset("cifar10", str(tmp_path))
    assert data.test_labels.tolist() == written["test_batch"][b"labels"]
    pixels = data.test_images.transpose(0, 3, 1, 2).reshape(EACH, -1)
    assert np.array_equal(pixels, written["test_batch"][b"data"])


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02cnumpy\ndtype\n(X\x02\x00\x00\x00O8tR.",
        b"\x80\x02cnumpy\ndtype\n.",
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(tR.",
    ],
)
def test_a_pickle_of_no_arrays_is_refused(tmp_path, content):
    write_cifar(tmp_path)
    (tmp_path / "data_batch_4").write_bytes(content)
    refused("cifar10", tmp_path, "data_batch_4")


class _Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_a_command_is_refused(tmp_path, protocol):
    content: dict[bytes, Any] = dict(write_cifar(tmp_path)["data_batch_1"])
    marker = tmp_path / "marker"
    content[b"batch_label"] = _Hostile(marker)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(content, protocol=protocol))
    refused("cifar10", tmp_path, "data_batch_1", "refused")
    assert not marker.exists()


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
