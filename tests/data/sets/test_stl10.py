"""STL-10's binary files: read correctly, with plain errors for damaged ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from mimetic_jax.data import describe, load_dataset
from tests.data.sets.refusals import refused

SIZES = {"train": 4, "test": 3}
IMAGE = 96 * 96 * 3


def split(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Made-up images [N, 96, 96, 3] and labels 1 to 10."""
    rng = np.random.default_rng(SIZES[name])
    images = rng.integers(0, 256, (SIZES[name], 96, 96, 3), np.uint8)
    return images, np.array([10, 1, 7, 3], np.uint8)[: SIZES[name]]


def write(folder: Path) -> None:
    """The files of the release: red, green, blue; each plane column by column."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SIZES:
        images, labels = split(name)
        planes = [
            image[:, :, channel].tobytes(order="F") for image in images for channel in range(3)
        ]
        (folder / f"{name}_X.bin").write_bytes(b"".join(planes))
        (folder / f"{name}_y.bin").write_bytes(labels.tobytes())


@pytest.mark.parametrize("inside", [True, False])
def test_files_are_read(tmp_path: Path, inside: bool) -> None:
    folder = tmp_path / "stl10_binary"
    write(folder)
    data = load_dataset("stl10", str(tmp_path if inside else folder))
    assert data.num_classes == 10
    assert np.array_equal(data.train_images, split("train")[0])
    assert np.array_equal(data.test_images, split("test")[0])


def test_labels_start_from_0(tmp_path: Path) -> None:
    write(tmp_path)
    data = load_dataset("stl10", str(tmp_path))
    assert data.train_labels.tolist() == [9, 0, 6, 2]
    assert data.test_labels.tolist() == [9, 0, 6]


def test_no_data_dir() -> None:
    refused("stl10", None, "data_dir", "stl10_binary.tar.gz", "acoates/stl10", "array_record")


def test_a_missing_folder_lists_the_files_searched(tmp_path: Path) -> None:
    refused(
        "stl10",
        tmp_path / "nowhere",
        "nowhere (no such folder)",
        "train_X.bin",
        "stl10_binary/",
        "stl10/VERSION",
        "stl10_binary.tar.gz",
    )


def test_missing_files_are_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "train_y.bin").unlink()
    (tmp_path / "test_X.bin").unlink()
    refused("stl10", tmp_path, "lacks train_y.bin, test_X.bin: 2 of the 4 files")


@pytest.mark.parametrize("kept", [0, 1, 2 * IMAGE - 1])
def test_a_truncated_file_is_named_with_its_size(tmp_path: Path, kept: int) -> None:
    write(tmp_path)
    path = tmp_path / "train_X.bin"
    path.write_bytes(path.read_bytes()[:kept])
    refused(
        "stl10",
        tmp_path,
        "train_X.bin",
        f"holds {kept} bytes",
        "multiple of the 27648",
        "138240000 for 5000 images",
    )


def test_a_file_cut_between_images_contradicts_its_labels(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "test_X.bin"
    path.write_bytes(path.read_bytes()[: 2 * IMAGE])
    refused("stl10", tmp_path, "test_y.bin holds uint8 labels of shape (3,) for 2 images")


@pytest.mark.parametrize(
    ("labels", "words"), [([0, 1, 2, 3], "from 0 to 3"), ([1, 2, 3, 11], "from 1 to 11")]
)
def test_labels_outside_the_classes_are_reported(
    tmp_path: Path, labels: list[int], words: str
) -> None:
    write(tmp_path)
    (tmp_path / "train_y.bin").write_bytes(bytes(labels))
    refused("stl10", tmp_path, "train_y.bin", words, "expected 1 to 10")


def test_real_stl10() -> None:
    folder = os.environ.get("MIMETIC_STL10_DIR")
    if not folder:
        pytest.skip("MIMETIC_STL10_DIR isn't set to a folder with STL-10")
    data, info = load_dataset("stl10", folder), describe("stl10")
    assert np.bincount(data.train_labels).tolist() == [info.num_train // 10] * 10
    assert np.bincount(data.test_labels).tolist() == [info.num_test // 10] * 10
