"""Data that can't be used, each in one line and at once: what is in place of a file, odd names."""

from __future__ import annotations

import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mimetic_jax.data import describe_own, load_dataset, load_own, open_source
from mimetic_jax.data.files import open as opening
from mimetic_jax.data.text.corpus import load_text
from tests.data.made import refused

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
    "nobody's": "~nosuchuser/x",
    "bytes": os.fsdecode(b"\xff"),
    "surrogate": "\ud800",
    "superscript": "1.0.²",
    "2,000 parts": "/".join("x" * 2000),
    "5,000 characters": "x" * 5000,
    "address": "http://a/b",
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
        lambda path: describe_own("folder_streamed", path, 0),
        lambda path: load_dataset("cifar10", f"{path}/cifar"),
    ],
)
def test_odd_paths_are_refused(read: Callable[[str], object], name: str) -> None:
    message = refused(lambda: read(ODD[name]))
    assert name != "address" or "is not on a local disk" in message


@pytest.mark.parametrize("version", ["1.0.0²", "1.0." + ".".join("1" * 120), "9.9.9"], ids=len)
def test_odd_versions_are_no_reason_to_fail(tmp_path: Path, version: str) -> None:
    (tmp_path / "cifar10" / version).mkdir(parents=True)
    (tmp_path / "cifar10" / version / "dataset_info.json").write_bytes(b"\xff no JSON")
    assert "cifar10" in refused(lambda: load_dataset("cifar10", str(tmp_path)))


@pytest.mark.parametrize(("load", "name"), [(load_dataset, "digits"), (load_text, "python_docs")])
def test_a_folder_that_is_not_read_is_refused(
    load: Callable[[str, str], object], name: str
) -> None:
    """Or digits would be trained on in place of the images that were meant."""
    message = refused(lambda: load(name, "imgs"))
    assert message.startswith(f"data.dir imgs is not used: {name} comes with")


def test_lists_of_labels_that_are_not_utf_8(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / opening.VALIDATION, "w") as tar:
        tar.addfile(tarfile.TarInfo("1.JPEG"))
    (tmp_path / opening.LABELS).write_bytes(b"n01\xff\n")
    message = refused(lambda: open_source("imagenet2012", str(tmp_path), "val", 1))
    assert message.endswith("isn't UTF-8: byte 3")
