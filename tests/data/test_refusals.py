"""Folders that can't be used, each in one line and at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mimetic_jax.data import describe_own, load_dataset, load_own
from mimetic_jax.data.text.corpus import load_text
from tests.data.made import refused

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
def test_odd_paths_are_refused(read: Callable[[str], object]) -> None:
    for name, path in ODD.items():
        message = refused(lambda path=path: read(path))
        assert name != "address" or "is not on a local disk" in message


def test_data_in_a_bucket_are_mounted() -> None:
    message = refused(lambda: load_own("folder", "gs://photos/birds/small", 0))
    assert message.endswith("mount it, as by gcsfuse photos DIR, and give DIR/birds/small")


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
