"""Every data set of published files under one law: read as written, refused in one line."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mimetic_jax.base.errors import InputError
from mimetic_jax.data import ImageDataset, describe, load_dataset
from mimetic_jax.data.sets import table
from mimetic_jax.data.sets.dataset import DatasetInfo, Split
from tests.data.sets.published import NAMES, refused, splits, write


def read_raw(paths: Sequence[Path], info: DatasetInfo, published: int) -> Split:
    pixels = np.frombuffer(b"".join(path.read_bytes() for path in paths), np.uint8)
    images = pixels.reshape(-1, *info.image_shape)
    return images, np.arange(len(images), dtype=np.int32) % info.num_classes


@pytest.fixture(autouse=True)
def dots(monkeypatch: pytest.MonkeyPatch) -> None:
    info = DatasetInfo(
        "dots",
        (2, 2, 1),
        2,
        4,
        1,
        mean=(0.5,),
        std=(0.5,),
        source="https://example.org/dots",
        folder="dots-1.0",
        files=(("a", "b"), ("t",)),
        read=read_raw,
    )
    monkeypatch.setitem(table._KNOWN, "dots", info)


def write_dots(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for file, values in {"a": range(8), "b": range(8, 12), "t": range(4)}.items():
        (folder / file).write_bytes(bytes(values))


def test_files_are_read_in_their_order(tmp_path: Path) -> None:
    write_dots(tmp_path / "dots-1.0")
    data = load_dataset("dots", str(tmp_path))
    assert isinstance(data, ImageDataset)
    assert (data.name, data.num_classes) == ("dots", 2)
    assert data.train_images.ravel().tolist() == list(range(12))
    assert data.train_labels.tolist() == [0, 1, 0]
    assert data.test_images.ravel().tolist() == list(range(4))


def test_errors_name_the_files_the_folder_and_the_source(tmp_path: Path) -> None:
    origin = "it comes from https://example.org/dots"
    for data_dir, message in [
        (
            None,
            f"dots needs the folder that holds it (data_dir, or --config.data.dir=DIR): {origin}",
        ),
        (str(tmp_path), f"no dots in {tmp_path}: looked for a there and in dots-1.0/; {origin}"),
    ]:
        with pytest.raises(InputError) as caught:
            load_dataset("dots", data_dir)
        assert str(caught.value) == message
    write_dots(tmp_path / "dots-1.0")
    (tmp_path / "dots-1.0" / "b").unlink()
    with pytest.raises(InputError, match=r"dots-1\.0 lacks b: 1 of the 3 files of dots; it comes"):
        load_dataset("dots", str(tmp_path))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("inside", [True, False])
def test_what_is_written_is_read(tmp_path: Path, name: str, inside: bool) -> None:
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
def test_what_is_missing_is_named_with_its_origin(tmp_path: Path, name: str) -> None:
    info = describe(name)
    commands = [f"mimetic {verb} {name} --data-dir=" for verb in ("download", "prepare")]
    origin = [info.source, *commands]
    files = [*info.files[0], *info.files[1]]
    refused(name, None, "data_dir", *origin)
    searched = [files[0], f"{info.tfds}/VERSION", *([f"{info.folder}/"] * bool(info.folder))]
    refused(name, tmp_path / "nowhere", "nowhere (no such folder)", *searched, *origin)
    refused(name, tmp_path, f"no {name} in", *origin)
    write(name, tmp_path)
    for missing in {files[0], files[-1]}:
        (tmp_path / missing).unlink()
    words = f"lacks {', '.join(dict.fromkeys([files[0], files[-1]]))}"
    if len(files) > 2:
        refused(name, tmp_path, words, f"2 of the {len(files)} files of {name}", *origin)


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_file_and_other_bytes_are_named_with_their_size(
    tmp_path: Path, name: str
) -> None:
    write(name, tmp_path)
    info = describe(name)
    path = tmp_path / info.files[0][0]
    whole, published = path.read_bytes(), info.num_train // (5 if name == "cifar10" else 1)
    truncated = [whole[:kept] for kept in (0, 1, 200, 10_000)]
    for content in (*truncated, b"no pickle at all\n", b"<html>\n<body>404</body>", b"\xff" * 64):
        path.write_bytes(content)
        refused(name, tmp_path, path.name, f"{len(content)} bytes", f"{published} images")


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("cifar10", {"labels": None}, ["KeyError: 'labels'"]),
        ("cifar10", {"data": np.zeros((6, 3071), np.uint8)}, ["(6, 3071)", "3072"]),
        ("cifar10", {"data": np.zeros((0, 3072), np.uint8)}, ["(0, 3072)"]),
        ("cifar10", {"data": np.zeros((6, 3072), np.float32)}, ["float32 (6, 3072)", "uint8"]),
        ("cifar10", {"data": [1, 2]}, ["list (2,)"]),
        ("cifar10", {"labels": [0] * 5}, ["(5,) for 6 images"]),
        ("cifar10", {"labels": [0, 1, 2, 3, 4, 10]}, ["from 0 to 10, expected 0 to 9"]),
        ("cifar10", {"labels": [0.5] * 6}, ["float64 labels"]),
    ],
)
def test_a_file_that_contradicts_itself_is_named(
    tmp_path: Path, name: str, change: dict[str, Any], words: list[str]
) -> None:
    write(name, tmp_path, **change)
    refused(name, tmp_path, describe(name).files[0][-1], *words)


@pytest.mark.parametrize("name", NAMES)
def test_the_real_files(name: str) -> None:
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
