"""Sources of encoded images: files by index, parts of a source, and all images in memory."""

import os
import pickle
import tarfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from mimetic_jax.data.files.archive import Archive
from mimetic_jax.data.files.decode import DecodeError
from mimetic_jax.data.files.folder import Folder
from mimetic_jax.data.files.sources import FileSource, Subset, contents, file_source, load_all
from mimetic_jax.errors import InputError
from tests.data.made import decoded


def write(root: Path, classes: int = 3, each: int = 4, size: tuple[int, int] = (9, 6)) -> Path:
    """A tree of plain images whose gray level is 10 · class + number."""
    for label in range(classes):
        folder = root / "train" / f"class{label}"
        folder.mkdir(parents=True)
        for number in range(each):
            image = Image.new("RGB", size, (10 * label + number,) * 3)
            image.save(folder / f"{number}.png")
    return root


@pytest.fixture
def source(tmp_path: Path) -> FileSource:
    return file_source(Folder(write(tmp_path)), "train", 3)


def test_images_come_with_their_labels(source: FileSource, tmp_path: Path) -> None:
    assert len(source) == 12
    assert source.labels.dtype == np.int32
    for index in range(12):
        data, label = source.read(index)
        assert label == source.labels[index] == index // 4
        assert np.asarray(decoded(data))[0, 0, 0] == 10 * label + index % 4
    assert source.name(5) == f"{tmp_path}:train/class1/1.png"


def test_a_copy_reads_the_same(source: FileSource) -> None:
    copy = pickle.loads(pickle.dumps(source))
    assert [copy.read(index) for index in range(12)] == [source.read(i) for i in range(12)]


@pytest.mark.parametrize("num_classes", [2, 4])
def test_another_number_of_classes_is_refused(tmp_path: Path, num_classes: int) -> None:
    write(tmp_path)
    with pytest.raises(InputError, match=f"holds 3 classes, expected {num_classes}: class0, "):
        file_source(Folder(tmp_path), "train", num_classes)


def test_a_part_is_read_in_its_order(source: FileSource) -> None:
    part = Subset(source, np.array([7, 0, 7]))
    assert len(part) == 3
    assert part.num_classes == 3
    assert part.labels.tolist() == [1, 0, 1]
    assert [part.read(index) for index in range(3)] == [source.read(i) for i in (7, 0, 7)]
    assert part.name(0) == source.name(7)
    nested = pickle.loads(pickle.dumps(Subset(part, np.array([1]))))
    assert nested.read(0) == source.read(0)


@pytest.mark.parametrize("index", [-1, 12])
def test_an_index_outside_is_refused(source: FileSource, index: int) -> None:
    with pytest.raises(InputError, match=f"indices run from .*{index}.* the source has 12 images"):
        Subset(source, np.array([3, index]))


def test_a_small_source_is_loaded_whole(source: FileSource) -> None:
    images, labels = load_all(source, 5, threads=3)
    assert images.shape == (12, 5, 5, 3)
    assert images.dtype == np.uint8
    assert np.array_equal(labels, source.labels)
    assert images[:, 2, 3, 1].tolist() == [10 * (i // 4) + i % 4 for i in range(12)]


def test_loading_whole_names_a_damaged_image(source: FileSource, tmp_path: Path) -> None:
    (tmp_path / "train/class1/2.png").write_bytes(b"nothing")
    with pytest.raises(DecodeError, match=r"train/class1/2\.png can't be decoded"):
        load_all(source, 5)


@pytest.mark.parametrize("form", ["folder", "tar"])
@pytest.mark.parametrize("changed", range(0, 12, 5))
def test_contents_are_of_every_image(tmp_path: Path, form: str, changed: int) -> None:
    """Also where one is replaced in place by another of the same size."""

    def opened() -> FileSource:
        if form == "folder":
            return file_source(Folder(tmp_path), "train", 3)
        with tarfile.open(tmp_path / "a.tar", "w") as tar:
            tar.add(tmp_path / "train", "train")
        return file_source(Archive(tmp_path / "a.tar"), "train", 3)

    write(tmp_path)
    before = contents(opened())
    path = tmp_path / f"train/class{changed // 4}/{changed % 4}.png"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    assert contents(opened()) != before
    data[-9] ^= 1
    path.write_bytes(data)
    assert contents(opened()) == before


def test_contents_are_of_the_labels_and_the_order(source: FileSource) -> None:
    labels = source.labels.copy()
    labels[3] = 2
    other = FileSource(source.container, source.members, labels, 3)
    parts = [Subset(source, np.array(part)) for part in ([0, 1], [1, 0], [0], [0, 1, 2])]
    assert len({contents(one) for one in (source, other, *parts)}) == 6


def test_contents_of_many_images_are_an_even_sample() -> None:
    """Every tenth of them is read equally often."""

    class Counted:
        num_classes = 1
        asked: ClassVar[list[int]] = []

        def __len__(self) -> int:
            return 100_000

        def outline(self) -> bytes:
            return b""

        def read(self, index: int) -> tuple[bytes, int]:
            self.asked.append(index)
            return bytes(100), 0

    contents(Counted(), most_bytes=200_000)
    assert 2000 <= len(Counted.asked) == len(set(Counted.asked)) < 2300
    tenths = np.bincount(np.array(Counted.asked) // 10_000)
    assert tenths.min() > 0.9 * tenths.mean()


@pytest.mark.skipif("MIMETIC_IMAGENET_SAMPLE_TAR" not in os.environ, reason="needs the real tar")
def test_real_imagenet_files_are_decoded() -> None:
    source = file_source(Archive(Path(os.environ["MIMETIC_IMAGENET_SAMPLE_TAR"])), "train", 100)
    images, labels = load_all(source, 64, threads=2)
    assert sorted(labels) == list(range(100))
    for index in range(0, 100, 9):
        image = decoded(source.read(index)[0])
        width, height = image.size
        size = (64, 64 * height // width) if width < height else (64 * width // height, 64)
        resized = np.asarray(image.resize(size, Image.Resampling.BICUBIC))
        top, left = round((size[1] - 64) / 2), round((size[0] - 64) / 2)
        assert np.array_equal(images[index], resized[top : top + 64, left : left + 64])


@pytest.mark.skipif("MIMETIC_TINY_IMAGENET_TAR" not in os.environ, reason="needs the real tar")
def test_real_tiny_imagenet_is_read() -> None:
    tar = Archive(Path(os.environ["MIMETIC_TINY_IMAGENET_TAR"]))
    for split, name in (("train", "{}_"), ("val", "val_")):
        source = file_source(tar, split, 200)
        counts = np.bincount(source.labels)
        assert len(counts) == 200
        assert counts.min() == counts.max() > 0
        synsets = sorted({n.split("/")[2] for n in tar.files if "/train/" in n})
        for index in range(0, len(source), 97):
            file = source.name(index).rpartition("/")[2]
            assert file.startswith(name.format(synsets[source.labels[index]]))
    images, _ = load_all(Subset(source, np.arange(0, len(source), 10)), 64, threads=2)
    pixels = np.asarray(decoded(source.read(10)[0]))
    assert np.array_equal(images[1], pixels)
