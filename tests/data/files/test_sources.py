"""Sources of encoded images: files by index, parts of a source, and all images in memory."""

import dataclasses
import os
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from mimetic_jax.data.files import sources
from mimetic_jax.data.files.class_folders import ClassFolders
from mimetic_jax.data.files.sources import Subset, contents, load_all
from mimetic_jax.data.files.views import CropSpec
from tests.data.made import decoded, encode, refused
from tests.images import class_folders


@pytest.fixture
def source(tmp_path):
    class_folders(tmp_path / "train", 4, "class0", "class1", "class2")
    return ClassFolders(tmp_path).source("train")


def test_a_part_is_read_in_its_order(source):
    part = Subset(source, np.array([7, 0, 7]))
    assert len(part) == 3
    assert part.num_classes == 3
    assert part.labels.tolist() == [1, 0, 1]
    assert [part.read(index) for index in range(3)] == [source.read(i) for i in (7, 0, 7)]
    assert part.name(0) == source.name(7)
    assert Subset(part, np.array([1])).read(0) == source.read(0)


def test_a_small_source_is_loaded_whole(source):
    ((images, labels), _), note = load_all((source, source), CropSpec(5))
    assert note == ""
    assert images.shape == (12, 5, 5, 3)
    assert images.dtype == np.uint8
    assert np.array_equal(labels, source.labels)
    expected = [[100 * label, number, 0] for label in range(3) for number in range(4)]
    assert images[:, 2, 3].tolist() == expected


@pytest.mark.parametrize("changed", range(0, 12, 5))
def test_contents_are_of_every_image(source, tmp_path, changed):
    before = contents(source)
    path = tmp_path / f"train/class{changed // 4}/{changed % 4}.png"
    data = path.read_bytes()
    Image.new("RGB", (9, 6), (200 + changed,) * 3).save(path)
    assert contents(source) != before
    path.write_bytes(data)
    assert contents(source) == before


def test_all_unreadable_images_are_named_at_once(source, tmp_path, monkeypatch):
    """Of every split, in order, whatever is wrong with each."""
    (tmp_path / "train/class2/0.png").write_bytes(b"")
    (tmp_path / "train/class0/3.png").unlink()
    (tmp_path / "train/class1/1.png").write_text("version https://git-lfs.github.com/spec/v1\n")
    parts = Subset(source, np.arange(6)), Subset(source, np.arange(6, 12))
    for read in (lambda: load_all(parts, CropSpec(5)), lambda: contents(*parts)):
        said = refused(read, "3 images: ", "git lfs pull", ": mend or remove them")
        named = [said.index(f"/{name}.png") for name in ("class0/3", "class1/1", "class2/0")]
        assert named == sorted(named)
    monkeypatch.setattr(sources, "_MOST_NAMED", 2)
    said = refused(lambda: contents(*parts), "; and 1 more: ")
    assert "class2" not in said


def test_images_of_other_colors_are_counted(source, tmp_path):
    for name, mode in (("class0/0", "L"), ("class0/1", "1"), ("class2/3", "CMYK")):
        path = tmp_path / f"train/{name}.png"
        Image.open(path).convert(mode).save(path, "TIFF")
    parts = Subset(source, np.arange(6)), Subset(source, np.arange(6, 12))
    assert load_all(parts, CropSpec(5))[1] == "1 CMYK, 2 gray images are read as RGB"


def test_a_set_of_gray_images_has_one_channel(source, tmp_path):
    for path in tmp_path.glob("train/*/*.png"):
        Image.new("L", (8, 8), 7).save(path)
    ((images, _),), note = load_all([source], CropSpec(5, channels=1))
    assert (images.shape, set(images.flat), note) == ((12, 5, 5, 1), {7}, "")
    path = tmp_path / "train/class1/2.png"
    Image.new("RGB", (8, 8), (7, 7, 9)).save(path)
    refused(lambda: load_all([source], CropSpec(5, channels=1)), f"{path} has colors", "are gray")


def test_contents_are_of_the_labels_and_the_order(source):
    labels = source.labels.copy()
    labels[3] = 2
    other = dataclasses.replace(source, labels=labels)
    parts = [Subset(source, np.array(part)) for part in ([0, 1], [1, 0], [0], [0, 1, 2])]
    assert len({contents(one) for one in (source, other, *parts)}) == 6


def test_contents_of_many_images_are_an_even_sample():
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
            return image, 0

        def name(self, index: int) -> str:
            return str(index)

    image = encode(np.zeros((8, 8, 3), np.uint8))
    contents(Counted(), most_bytes=2_000 * len(image))
    assert 2000 <= len(Counted.asked) == len(set(Counted.asked)) < 2300
    tenths = np.bincount(np.array(Counted.asked) // 10_000)
    assert tenths.min() > 0.9 * tenths.mean()


@pytest.mark.skipif("MIMETIC_TINY_IMAGENET" not in os.environ, reason="needs real files")
def test_real_tiny_imagenet_is_read():
    tree = ClassFolders(Path(os.environ["MIMETIC_TINY_IMAGENET"]))
    for split, name in (("train", "{}_"), ("validation", "val_")):
        source = tree.source(split)
        counts = np.bincount(source.labels)
        assert len(counts) == 200
        assert counts.min() == counts.max() > 0
        for index in range(0, len(source), 97):
            file = source.name(index).rpartition("/")[2]
            assert file.startswith(name.format(source.classes[source.labels[index]]))
    ((images, _),), _ = load_all([Subset(source, np.arange(0, len(source), 10))], CropSpec(64))
    pixels = np.asarray(decoded(source.read(10)[0]))
    assert np.array_equal(images[1], pixels)
