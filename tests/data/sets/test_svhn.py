"""SVHN's MATLAB files: read correctly, with plain errors for damaged ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from mimetic_jax.data import describe, load_dataset
from tests.data.sets.refusals import refused

SIZES = {"train": 12, "test": 5}


def content(split: str) -> dict[str, Any]:
    """What a file of the release holds: images last, labels 1 to 10 in a column."""
    size = SIZES[split]
    rng = np.random.default_rng(size)
    return {
        "X": rng.integers(0, 256, (32, 32, 3, size), np.uint8),
        "y": (np.arange(size, dtype=np.uint8)[:, None] % 10) + 1,
    }


def write(folder: Path, **changes: Any) -> None:
    """Both files; `changes` replace arrays of the train file."""
    for split in SIZES:
        values = content(split) | (changes if split == "train" else {})
        savemat(folder / f"{split}_32x32.mat", values)


def test_files_are_read(tmp_path: Path) -> None:
    write(tmp_path)
    data = load_dataset("svhn", str(tmp_path))
    assert data.image_shape == (32, 32, 3)
    assert data.num_classes == 10
    for images, split in ((data.train_images, "train"), (data.test_images, "test")):
        expected = content(split)["X"]
        assert len(images) == SIZES[split]
        for example in range(SIZES[split]):
            assert np.array_equal(images[example], expected[:, :, :, example])


def test_class_10_is_the_digit_0(tmp_path: Path) -> None:
    write(tmp_path)
    data = load_dataset("svhn", str(tmp_path))
    assert data.train_labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert data.test_labels.tolist() == [1, 2, 3, 4, 5]


def test_no_data_dir() -> None:
    refused(
        "svhn", None, "data_dir", "train_32x32.mat", "housenumbers", "svhn_cropped", "array_record"
    )


def test_a_missing_folder_lists_the_files_searched(tmp_path: Path) -> None:
    refused(
        "svhn",
        tmp_path / "nowhere",
        "nowhere (no such folder)",
        "train_32x32.mat",
        "svhn_cropped/VERSION",
        "array_record",
    )


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_missing_file_is_named(tmp_path: Path, split: str) -> None:
    write(tmp_path)
    (tmp_path / f"{split}_32x32.mat").unlink()
    refused("svhn", tmp_path, f"lacks {split}_32x32.mat: 1 of the 2 files of svhn", "housenumbers")


@pytest.mark.parametrize("kept", [0, 50, 200, 10_000])
def test_a_truncated_file_is_named_with_its_size(tmp_path: Path, kept: int) -> None:
    write(tmp_path)
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:kept])
    refused("svhn", tmp_path, "test_32x32.mat", f"found {kept} bytes", "26032 images")


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "train_32x32.mat").write_bytes(b"<html>\n<body>404</body>" * 20)
    refused("svhn", tmp_path, "train_32x32.mat", "can't be read")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"X": np.zeros((32, 32, 3, 12))}, ["float64 (32, 32, 3, 12)", "expected uint8"]),
        ({"X": np.zeros((12, 32, 32, 3), np.uint8)}, ["uint8 (12, 32, 32, 3)"]),
        ({"y": np.ones((11, 1), np.uint8)}, ["shape (11,) for 12 images"]),
        ({"y": np.full((12, 1), 0.5)}, ["float64 labels"]),
        ({"y": np.arange(12, dtype=np.uint8)[:, None]}, ["from 0 to 11, expected 1 to 10"]),
    ],
)
def test_a_file_that_contradicts_itself_is_named(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    write(tmp_path, **changes)
    refused("svhn", tmp_path, "train_32x32.mat", *words)


def test_a_file_without_labels_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    savemat(tmp_path / "train_32x32.mat", {"X": content("train")["X"]})
    refused("svhn", tmp_path, "train_32x32.mat", "KeyError: 'y'")


def test_real_svhn() -> None:
    folder = os.environ.get("MIMETIC_SVHN_DIR")
    if not folder:
        pytest.skip("MIMETIC_SVHN_DIR isn't set to a folder with SVHN")
    data, info = load_dataset("svhn", folder), describe("svhn")
    assert len(data.train_labels) == info.num_train
    assert len(data.test_labels) == info.num_test
    for channel in range(3):
        pixels = data.train_images[..., channel] / np.float32(255)
        assert pixels.mean(dtype=np.float64) == pytest.approx(info.mean[channel], abs=1e-4)
        assert pixels.std(dtype=np.float64) == pytest.approx(info.std[channel], abs=1e-4)
