"""A data set of published files is one entry of the table, whether or not TFDS has it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mimetic_jax.data import ImageDataset, load_dataset
from mimetic_jax.data.sets import table
from mimetic_jax.data.sets.dataset import DatasetInfo, Split
from mimetic_jax.errors import InputError


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


def write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for file, values in {"a": range(8), "b": range(8, 12), "t": range(4)}.items():
        (folder / file).write_bytes(bytes(values))


@pytest.mark.parametrize("below", ["", "dots-1.0"])
def test_files_are_read_in_their_order(tmp_path: Path, below: str) -> None:
    write(tmp_path / below)
    data = load_dataset("dots", str(tmp_path))
    assert isinstance(data, ImageDataset)
    assert (data.name, data.num_classes) == ("dots", 2)
    assert data.train_images.ravel().tolist() == list(range(12))
    assert data.train_labels.tolist() == [0, 1, 0]
    assert data.test_images.ravel().tolist() == list(range(4))


def test_errors_name_the_files_the_folder_and_the_source(tmp_path: Path) -> None:
    origin = "download a and b and t from https://example.org/dots"
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
    write(tmp_path / "dots-1.0")
    (tmp_path / "dots-1.0" / "b").unlink()
    with pytest.raises(InputError, match=r"dots-1\.0 lacks b: 1 of the 3 files of dots; download"):
        load_dataset("dots", str(tmp_path))
