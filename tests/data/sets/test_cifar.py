"""CIFAR's pickled batches: read correctly, with plain errors for damaged or hostile ones."""

import contextlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from mimetic_jax.data import describe, load_dataset
from mimetic_jax.errors import InputError
from tests.data.sets.refusals import refused
from tests.fuzz import Change, changes, damaged, peak_bytes

ROWS = 6
FILES = {
    "cifar10": (
        "cifar-10-batches-py",
        b"labels",
        [f"data_batch_{i}" for i in range(1, 6)],
        "test_batch",
    ),
    "cifar100": ("cifar-100-python", b"fine_labels", ["train"], "test"),
}


def batch(seed: int, label_key: bytes, num_classes: int) -> dict[bytes, Any]:
    rng = np.random.default_rng(seed)
    return {
        b"data": rng.integers(0, 256, (ROWS, 3072), np.uint8),
        label_key: rng.integers(0, num_classes, ROWS).tolist(),
        b"coarse_labels": [0] * ROWS,
        b"filenames": [b"a.png"] * ROWS,
    }


def write(folder: Path, name: str) -> dict[str, dict[bytes, Any]]:
    """Made-up batches of `name`, and what was written by file."""
    _, label_key, train, test = FILES[name]
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for seed, file in enumerate([*train, test]):
        written[file] = batch(seed, label_key, 100 if name == "cifar100" else 10)
        (folder / file).write_bytes(pickle.dumps(written[file], protocol=4))
    return written


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("inside", [True, False])
def test_batches_are_read(tmp_path: Path, name: str, inside: bool) -> None:
    folder, label_key, train, test = FILES[name]
    written = write(tmp_path / folder, name)
    data = load_dataset(name, str(tmp_path if inside else tmp_path / folder))
    assert data.image_shape == (32, 32, 3)
    assert data.num_classes == (100 if name == "cifar100" else 10)
    labels = [written[file][label_key] for file in train]
    assert data.train_labels.tolist() == np.concatenate(labels).tolist()
    assert data.test_labels.tolist() == written[test][label_key]
    # Red, then green, then blue; each row by row.
    rows = np.concatenate([written[file][b"data"] for file in train])
    for example, row, column, channel in [(0, 0, 0, 0), (3, 5, 31, 1), (len(rows) - 1, 31, 2, 2)]:
        expected = rows[example, channel * 1024 + row * 32 + column]
        assert data.train_images[example, row, column, channel] == expected
    assert np.array_equal(
        data.test_images.transpose(0, 3, 1, 2).reshape(ROWS, -1), written[test][b"data"]
    )


def test_a_pickle_of_python_2_is_read(tmp_path: Path) -> None:
    """The published files are of protocol 2, with byte strings that Python 3 no longer writes."""
    folder = tmp_path / "cifar-10-batches-py"
    written = write(folder, "cifar10")
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
            b"(" + number(1) + b"(" + number(ROWS) + number(3072) + b"t",
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
def test_every_protocol_of_python_3_is_read(tmp_path: Path, protocol: int, text_keys: bool) -> None:
    """As a notebook writes the files again; keys are text where they were read as latin1."""
    written = write(tmp_path, "cifar10")
    for file, content in written.items():
        again = {key.decode() if text_keys else key: value for key, value in content.items()}
        (tmp_path / file).write_bytes(pickle.dumps(again, protocol=protocol))
    data = load_dataset("cifar10", str(tmp_path))
    assert data.test_labels.tolist() == written["test_batch"][b"labels"]
    pixels = data.test_images.transpose(0, 3, 1, 2).reshape(ROWS, -1)
    assert np.array_equal(pixels, written["test_batch"][b"data"])


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02]r\xff\xff\xff\x1f.",  # a memo of half a billion places
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x0f.",  # bytes without end
        b"\x80\x02" + b"(" * 9_000 + b"t" * 9_000 + b".",
        b"\x80\x02cnumpy\ndtype\n(X\x02\x00\x00\x00O8tR.",
        b"\x80\x02cnumpy\ndtype\n.",
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(tR.",
    ],
)
def test_a_small_pickle_takes_no_memory(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, "cifar10")
    (tmp_path / "data_batch_4").write_bytes(content)
    with peak_bytes(60_000_000):
        refused("cifar10", tmp_path, "data_batch_4")


def test_random_edits_are_read_or_refused(tmp_path: Path) -> None:
    whole = write(tmp_path, "cifar10")["test_batch"]
    whole[b"data"] = np.zeros((2, 3072), np.uint8)
    whole[b"labels"] = whole[b"labels"][:2]
    content = pickle.dumps(whole, protocol=2)

    @settings(deadline=None, max_examples=100, derandomize=True, database=None)
    @given(changes)
    def check(edits: list[Change]) -> None:
        (tmp_path / "test_batch").write_bytes(damaged(content, edits))
        with contextlib.suppress(InputError), peak_bytes(60_000_000):
            load_dataset("cifar10", str(tmp_path))

    check()


def test_no_data_dir() -> None:
    refused("cifar10", None, "data_dir", "cifar-10-python.tar.gz", "array_record")


def test_a_missing_folder_lists_the_files_searched(tmp_path: Path) -> None:
    refused(
        "cifar10",
        tmp_path / "nowhere",
        "nowhere (no such folder)",
        "data_batch_1",
        "cifar-10-batches-py/",
        "cifar-10-python.tar.gz",
        "array_record",
    )
    refused("cifar100", tmp_path, "no cifar100", "cifar-100-python.tar.gz")


def test_missing_batches_are_named(tmp_path: Path) -> None:
    write(tmp_path, "cifar10")
    (tmp_path / "data_batch_3").unlink()
    (tmp_path / "test_batch").unlink()
    refused("cifar10", tmp_path, "lacks data_batch_3, test_batch", "2 of the 6 files")


@pytest.mark.parametrize("kept", [0, 1, 100, 10_000])
def test_a_truncated_batch_is_named_with_its_size(tmp_path: Path, kept: int) -> None:
    write(tmp_path, "cifar10")
    path = tmp_path / "data_batch_2"
    path.write_bytes(path.read_bytes()[:kept])
    refused("cifar10", tmp_path, "data_batch_2", f"found {kept} bytes", "30720000", "10000 images")


@pytest.mark.parametrize(
    "content", [b"no pickle at all\n", b"\x80\x04]\x94.", b"<html>\n<body>404</body>", b"\xff" * 64]
)
def test_other_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, "cifar10")
    (tmp_path / "data_batch_4").write_bytes(content)
    refused("cifar10", tmp_path, "data_batch_4")


def _set(key: bytes, value: Any) -> Callable[[dict[bytes, Any]], None]:
    return lambda content: content.update({key: value})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda content: content.pop(b"labels"), ["labels"]),
        (_set(b"data", np.zeros((ROWS, 3071), np.uint8)), ["(6, 3071)", "3072"]),
        (_set(b"data", np.zeros((0, 3072), np.uint8)), ["(0, 3072)"]),
        (_set(b"data", np.zeros((ROWS, 3072), np.float32)), ["float32 (6, 3072)", "uint8"]),
        (_set(b"data", [1, 2]), ["list (2,)"]),
        (_set(b"labels", [0] * 5), ["(5,) for 6 images"]),
        (_set(b"labels", [0, 1, 2, 3, 4, 10]), ["from 0 to 10, expected 0 to 9"]),
        (_set(b"labels", [0.5] * ROWS), ["float64"]),
    ],
)
def test_a_batch_that_contradicts_itself_is_named(
    tmp_path: Path, damage: Callable[[dict[bytes, Any]], None], words: list[str]
) -> None:
    content = write(tmp_path, "cifar10")["data_batch_5"]
    damage(content)
    (tmp_path / "data_batch_5").write_bytes(pickle.dumps(content, protocol=4))
    refused("cifar10", tmp_path, "data_batch_5", *words)


def test_a_shorter_batch_than_the_others_is_named(tmp_path: Path) -> None:
    content = write(tmp_path, "cifar10")["data_batch_3"]
    content[b"data"], content[b"labels"] = content[b"data"][:4], content[b"labels"][:4]
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps(content, protocol=4))
    refused("cifar10", tmp_path, "data_batch_3 holds 4 images, expected 6 as in data_batch_1")


class _Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_a_command_is_refused(tmp_path: Path, protocol: int) -> None:
    content: dict[bytes, Any] = dict(write(tmp_path, "cifar10")["data_batch_1"])
    marker = tmp_path / "marker"
    content[b"batch_label"] = _Hostile(marker)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(content, protocol=protocol))
    refused("cifar10", tmp_path, "data_batch_1", "refused")
    assert not marker.exists()


def test_real_cifar10() -> None:
    folder = os.environ.get("MIMETIC_CIFAR10_DIR")
    if not folder:
        pytest.skip("MIMETIC_CIFAR10_DIR isn't set to a folder with CIFAR-10")
    data, info = load_dataset("cifar10", folder), describe("cifar10")
    assert np.bincount(data.train_labels).tolist() == [5000] * 10
    assert np.bincount(data.test_labels).tolist() == [1000] * 10
    for channel in range(3):
        pixels = data.train_images[..., channel] / np.float32(255)
        assert pixels.mean(dtype=np.float64) == pytest.approx(info.mean[channel], abs=1e-4)
        assert pixels.std(dtype=np.float64) == pytest.approx(info.std[channel], abs=1e-4)
