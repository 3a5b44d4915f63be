"""Where images are looked for, and one's own: each in one split, with the class of its folder."""

import os
import pathlib
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from mimetic_jax import data as datasets
from mimetic_jax.data import ImageDataset, StreamedDataset, describe_own, load_dataset, load_own
from mimetic_jax.data.text.corpus import load_text
from tests.data.made import refused

COLORS = {"blue": 30, "green": 90, "red": 150}


def fill(folder: pathlib.Path, counts: dict[str, int], first: int = 0) -> None:
    """Images of a class have its color in one channel, and their number in another."""
    for label, count in counts.items():
        (folder / label).mkdir(parents=True)
        for number in range(first, first + count):
            color = (COLORS[label], number, 0)
            Image.new("RGB", (12, 10), color).save(folder / label / f"{number}.png")


def found(images: np.ndarray, labels: np.ndarray) -> set[tuple[str, int]]:
    names = np.array(sorted(COLORS))[labels]
    assert images[:, 0, 0, 0].tolist() == [COLORS[name] for name in names]
    return set(zip(names.tolist(), images[:, 0, 0, 1].tolist(), strict=True))


def every(counts: dict[str, int], first: int = 0) -> set[tuple[str, int]]:
    return {(name, first + i) for name, count in counts.items() for i in range(count)}


COUNTS = {"blue": 20, "green": 10, "red": 30}


def test_a_tenth_of_each_class_is_held_out_and_nothing_lost(tmp_path):
    fill(tmp_path, COUNTS)
    data = load_own("folder", str(tmp_path), 8)
    assert data.train_images.shape == (54, 8, 8, 3)
    train = found(data.train_images, data.train_labels)
    test = found(data.test_images, data.test_labels)
    assert not train & test
    assert train | test == every(COUNTS)
    held_out = {name: sum(label == name for label, _ in test) for name in COUNTS}
    assert held_out == {"blue": 2, "green": 1, "red": 3}
    assert load_own("folder", str(tmp_path), 8).fingerprint() == data.fingerprint()


def test_a_test_split_is_taken_as_it_is(tmp_path):
    """Before a validation split, where there is one."""
    fill(tmp_path / "train", COUNTS)
    for first, split in enumerate(("val", "test")):
        fill(tmp_path / split, {"blue": 2, "red": 1}, first=100 + first)
        data = load_own("folder", str(tmp_path), 8)
        assert found(data.train_images, data.train_labels) == every(COUNTS)
        tested = every({"blue": 2, "red": 1}, 100 + first)
        assert found(data.test_images, data.test_labels) == tested


def test_the_current_folder_has_a_name(tmp_path, monkeypatch):
    fill(tmp_path / "flowers", COUNTS)
    for here, data_dir in (("flowers", "."), ("flowers/red", ".."), (".", "flowers")):
        monkeypatch.chdir(tmp_path / here)
        assert describe_own("folder", data_dir, 8).name == "flowers"
        assert load_own("folder", data_dir, 8).name == "flowers"


def test_none_of_a_small_class_is_held_out(tmp_path):
    fill(tmp_path, {"blue": 4, "red": 5})
    info, data = describe_own("folder", str(tmp_path), 8), load_own("folder", str(tmp_path), 8)
    assert (info.num_train, info.num_test) == (8, 1)
    assert data.test_labels.tolist() == [1]


@pytest.mark.parametrize("name", ["folder", "folder_streamed"])
def test_the_sizes_are_known_before_an_image_is_decoded(tmp_path, name):
    fill(tmp_path, COUNTS)
    (tmp_path / "red" / "0.png").write_bytes(b"damaged")
    info = describe_own(name, str(tmp_path), 0)
    assert (info.num_train, info.num_test, info.num_classes) == (54, 6, 3)
    assert info.image_shape == ((224, 224, 3) if info.streamed else (64, 64, 3))
    # A loaded set is described without listing its files.
    Image.new("RGB", (12, 10)).save(tmp_path / "red" / "0.png")
    data = load_own(name, str(tmp_path), 0)
    for file in tmp_path.rglob("*.png"):
        file.unlink()
    assert describe_own(name, str(tmp_path), 0, data) == info


def test_copies_are_left_out_of_ones_own_images(tmp_path):
    """Of those that stream links alone."""
    fill(tmp_path, COUNTS)
    (tmp_path / "blue/copy.png").write_bytes((tmp_path / "red/3.png").read_bytes())
    (tmp_path / "green/link.png").symlink_to(tmp_path / "red/4.png")
    (tmp_path / "red/dead.png").symlink_to("nothing.png")
    unread = "green/link.png of red/4.png"
    info = describe_own("folder_streamed", str(tmp_path), 0)
    assert (sum((info.num_train, info.num_test)), info.notes) == (
        62,
        f"left out: 1 ({unread}: copies)",
    )
    info = describe_own("folder", str(tmp_path), 8)
    assert info.num_train + info.num_test == 61
    assert "blue/copy.png of red/3.png" in info.notes or "red/3.png of blue/copy.png" in info.notes
    refused(
        lambda: load_own("folder", str(tmp_path), 8), "red/dead.png can't be read (No such file"
    )


def test_streamed_images_and_a_part(tmp_path):
    fill(tmp_path, COUNTS)
    data = load_own("folder_streamed", str(tmp_path), 0).part(0.5)
    assert isinstance(data, StreamedDataset)
    assert data.sizes == (9 + 4 + 14, 6)  # of 18, 9 and 27; a half is rounded to even
    part = load_own("folder", str(tmp_path), 8).part(0.5)
    np.testing.assert_array_equal(part.train_labels, data.train.labels)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder.mkdir(), "holds no images"),
        (lambda folder: fill(folder, {"blue": 1, "red": 2}), "too few images (3 in all)"),
        (lambda folder: fill(folder / "test", {"blue": 9}), "has no images of split 'train'"),
        (lambda folder: None, "there is no file or folder"),
        (None, "folder needs your images. Pass --data-dir=FOLDER"),
    ],
)
def test_bad_folders_are_one_line(tmp_path, make, words):
    if make:
        make(tmp_path / "own")
    refused(lambda: describe_own("folder", make and str(tmp_path / "own"), 0), words)


@pytest.mark.parametrize("place", ["oxford_iiit_pet/", ""])
def test_every_folder_is_searched(tmp_path, place):
    fill(tmp_path / place / "train", {"blue": 3, "red": 2})
    fill(tmp_path / place / "test", {"blue": 1})
    data = load_dataset("oxford_iiit_pet", str(tmp_path), classes=2)
    assert isinstance(data, StreamedDataset)
    assert (data.sizes, data.num_classes) == ((5, 1), 2)
    words = "holds 2 classes, expected 37: blue, red, ... (for a sample, set data.classes)"
    refused(lambda: load_dataset("oxford_iiit_pet", str(tmp_path)), words)
    words = "imagenet2012/VERSION/dataset_info.json (TFDS), imagenet2012/train/, train/; it comes f"
    searched = f"no imagenet2012 in {tmp_path / 'no'} (no such folder): looked for {words}"
    refused(lambda: load_dataset("imagenet2012", str(tmp_path / "no")), searched)


def test_a_file_is_unpacked_first(tmp_path):
    path = tmp_path / "pets.tar.gz"
    path.write_bytes(b"")
    words = f"{path} is a file; pass a folder of images, unpacked if it is an archive"
    for load in (describe_own, load_own):
        refused(lambda load=load: load("folder", str(path), 0), words)
    refused(lambda: load_dataset("imagenet2012", str(path)), words)


def test_colors_of_arrays_are_those_of_float64_in_little_memory():
    images = np.random.default_rng(0).integers(0, 256, (600, 32, 32, 3), np.uint8)
    images[..., 2] = 77
    labels = np.zeros(600, np.int32)
    tracemalloc.start()
    try:
        info = datasets.info_of(ImageDataset("mine", images, labels, images[:1], labels[:1], 1))
        assert tracemalloc.get_traced_memory()[1] <= images.nbytes
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(info.mean, images.mean(axis=(0, 1, 2)) / 255, rtol=1e-12)
    np.testing.assert_allclose(info.std[:2], images.std(axis=(0, 1, 2))[:2] / 255, rtol=1e-12)
    assert info.std[2] == 1


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
def test_odd_paths_are_refused(read):
    for name, path in ODD.items():
        message = refused(lambda path=path: read(path))
        assert name != "address" or "is not on a local disk" in message


def test_data_in_a_bucket_are_mounted():
    message = refused(lambda: load_own("folder", "gs://photos/birds/small", 0))
    assert message.endswith("mount it, as by gcsfuse photos DIR, and pass DIR/birds/small")


@pytest.mark.parametrize("version", ["1.0.0²", "1.0." + ".".join("1" * 120), "9.9.9"], ids=len)
def test_odd_versions_are_no_reason_to_fail(tmp_path, version):
    (tmp_path / "cifar10" / version).mkdir(parents=True)
    (tmp_path / "cifar10" / version / "dataset_info.json").write_bytes(b"\xff no JSON")
    assert "cifar10" in refused(lambda: load_dataset("cifar10", str(tmp_path)))


@pytest.mark.parametrize(("load", "name"), [(load_dataset, "digits"), (load_text, "python_docs")])
def test_a_folder_that_is_not_read_is_refused(load, name):
    """Or digits would be trained on in place of the images that were meant."""
    message = refused(lambda: load(name, "imgs"))
    assert message.startswith(f"{name} comes with")
