"""Data that can't be used, each in one line and at once: what is in place of a file, odd names."""

from __future__ import annotations

import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mimetic_jax.data import (
    ImageDataset,
    describe_own,
    load_dataset,
    load_own,
    open_source,
)
from mimetic_jax.data.files import open as opening
from mimetic_jax.data.text.corpus import load_text
from mimetic_jax.errors import InputError

CIFAR = {
    **{f"data_batch_{number}": b"" for number in range(1, 6)},
    "test_batch": b"",
}
BATCH = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 1]})
PTB = {f"ptb.{split}.txt": b"a b\n" for split in ("train", "valid", "test")}
STL = {f"{split}_{part}.bin": b"" for split in ("train", "test") for part in ("X", "y")}
SVHN = {f"{split}_32x32.mat": b"" for split in ("train", "test")}
TEXTS = {f"{split}.txt": b"some words\n" * 9 for split in ("train", "valid", "test")}
LISTED = {opening.VALIDATION: None, opening.LABELS: b"n01\n"}

# Files of a folder, that which is replaced, and how the folder is read.
CASES: dict[str, tuple[dict[str, bytes | None], str, Callable[[str], object]]] = {
    "cifar": (dict.fromkeys(CIFAR, BATCH), "data_batch_3", lambda d: load_dataset("cifar10", d)),
    "svhn": (SVHN, "test_32x32.mat", lambda d: load_dataset("svhn", d)),
    "stl10": (STL, "train_y.bin", lambda d: load_dataset("stl10", d)),
    "ptb": (PTB, "ptb.valid.txt", lambda d: load_text("ptb_word", d)),
    "texts": (TEXTS, "valid.txt", lambda d: load_text("text_word", d)),
    "joined": ({"a.txt": b"x\n", "b.txt": b"y\n"}, "b.txt", lambda d: load_text("text_char", d)),
    "text": ({"a.txt": b"x\n"}, "a.txt", lambda d: load_text("text_char", f"{d}/a.txt")),
    "tar": ({"a.tar": b""}, "a.tar", lambda d: describe_own("folder", f"{d}/a.tar", 0)),
    "pets": ({"pets.zip": b""}, "pets.zip", lambda d: open_source("pets", d, "train", 2)),
    "labels": (
        LISTED,
        opening.LABELS,
        lambda d: open_source("imagenet2012", d, "val", 1),
    ),
    "tfds": (
        {"stl10/1.0.0/dataset_info.json": b"{}"},
        "stl10/1.0.0/dataset_info.json",
        lambda d: load_dataset("stl10", d),
    ),
}


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", ["pipe", "device", "dead link", "link to itself", "folder"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_in_place_of_a_file_is_refused(tmp_path: Path, case: str, place: str) -> None:
    files, replaced, read = CASES[case]
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            with tarfile.open(tmp_path / name, "w") as tar:
                tar.addfile(tarfile.TarInfo("1.JPEG"))
        else:
            (tmp_path / name).write_bytes(content)
    path = tmp_path / replaced
    path.unlink()
    if place == "pipe":
        os.mkfifo(path)
    elif place == "folder":
        path.mkdir()
    else:
        targets = {"device": "/dev/zero", "dead link": "nowhere", "link to itself": path.name}
        path.symlink_to(targets[place])
    if (case, place) in {("text", "folder"), ("tar", "folder")}:
        return  # folders may be data themselves
    refused(lambda: read(str(tmp_path)))


ODD = {
    "NUL": "a\0b",
    "bytes": os.fsdecode(b"\xff"),
    "surrogate": "\ud800",
    "superscript": "1.0.²",
    "2,000 parts": "/".join("x" * 2000),
    "5,000 characters": "x" * 5000,
    "bucket": "gs://a/b",
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(
    "read",
    [
        lambda path: load_dataset("cifar10", path),
        lambda path: load_dataset("imagenet2012", path),
        lambda path: load_text("ptb_char", path),
        lambda path: load_text("text_char", path),
        lambda path: load_own("folder", path, 0),
        lambda path: load_dataset("cifar10", f"{path}/cifar"),
    ],
)
def test_odd_paths_are_refused(read: Callable[[str], object], name: str) -> None:
    refused(lambda: read(ODD[name]))


@pytest.mark.parametrize("version", ["1.0.0²", "1.0." + ".".join("1" * 120), "9.9.9"], ids=len)
def test_odd_versions_are_no_reason_to_fail(tmp_path: Path, version: str) -> None:
    (tmp_path / "cifar10" / version).mkdir(parents=True)
    (tmp_path / "cifar10" / version / "dataset_info.json").write_bytes(b"\xff no JSON")
    assert "cifar10" in refused(lambda: load_dataset("cifar10", str(tmp_path)))


@pytest.mark.parametrize(
    "read",
    [
        lambda path: load_dataset("cifar10", path),
        lambda path: load_text("ptb_char", path),
        lambda path: load_text("text_char", path),
    ],
)
def test_what_is_no_archive_in_a_bucket_is_to_be_copied(read: Callable[[str], object]) -> None:
    message = refused(lambda: read("gs://foo/bar"))
    assert "gs://foo/bar is not on a local disk" in message
    assert "gcloud storage cp -r gs://foo/bar DIR" in message


@pytest.mark.parametrize(("load", "name"), [(load_dataset, "digits"), (load_text, "python_docs")])
def test_a_folder_that_is_not_read_is_refused(
    load: Callable[[str, str], object], name: str
) -> None:
    """Or digits would be trained on in place of the images that were meant."""
    message = refused(lambda: load(name, "imgs"))
    assert message.startswith(f"data.dir imgs is not used: {name} comes with")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train_images", [[[[0]]]]),
        ("test_labels", [0]),
        ("train_labels", "0"),
        ("test_images", None),
        ("num_classes", 2.5),
        ("num_classes", 0),
        ("name", 3),
    ],
)
def test_a_data_set_of_other_things_than_arrays_is_refused(field: str, value: object) -> None:
    images, labels = np.zeros((1, 1, 1, 1), np.uint8), np.zeros(1, np.int32)
    fields = {
        "name": "dots",
        "train_images": images,
        "train_labels": labels,
        "test_images": images,
        "test_labels": labels,
        "num_classes": 1,
    }
    message = refused(lambda: ImageDataset(**fields | {field: value}))
    assert message.startswith(f"ImageDataset.{field} ")


def test_arrays_of_jax_are_arrays() -> None:
    import jax.numpy as jnp

    images, labels = jnp.zeros((1, 1, 1, 1), jnp.uint8), jnp.zeros(1, jnp.int32)
    data = ImageDataset("dots", images, labels, images, labels, 1)
    assert isinstance(data.train_images, np.ndarray)


def test_lists_of_labels_that_are_not_utf_8(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / opening.VALIDATION, "w") as tar:
        tar.addfile(tarfile.TarInfo("1.JPEG"))
    (tmp_path / opening.LABELS).write_bytes(b"n01\xff\n")
    message = refused(lambda: open_source("imagenet2012", str(tmp_path), "val", 1))
    assert message.endswith("isn't UTF-8: byte 3")
