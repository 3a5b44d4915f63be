"""CIFAR's pickles: of every protocol, and made to harm."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mimetic_jax.data import load_dataset
from tests.data.sets.published import EACH, refused, write


def write_cifar(folder: Path) -> dict[str, dict[bytes, Any]]:
    """Made-up batches, and what was written by file."""
    write("cifar10", folder)
    return {path.name: pickle.loads(path.read_bytes()) for path in sorted(folder.iterdir())}


def test_a_pickle_of_python_2_is_read(tmp_path: Path) -> None:
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
def test_every_protocol_of_python_3_is_read(tmp_path: Path, protocol: int, text_keys: bool) -> None:
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
def test_a_pickle_of_no_arrays_is_refused(tmp_path: Path, content: bytes) -> None:
    write_cifar(tmp_path)
    (tmp_path / "data_batch_4").write_bytes(content)
    refused("cifar10", tmp_path, "data_batch_4")


def test_a_shorter_batch_than_the_others_is_named(tmp_path: Path) -> None:
    content = write_cifar(tmp_path)["data_batch_3"]
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
    content: dict[bytes, Any] = dict(write_cifar(tmp_path)["data_batch_1"])
    marker = tmp_path / "marker"
    content[b"batch_label"] = _Hostile(marker)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(content, protocol=protocol))
    refused("cifar10", tmp_path, "data_batch_1", "refused")
    assert not marker.exists()
