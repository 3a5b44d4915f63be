"""Folders of images: their splits, their classes and their errors."""

import functools
import unicodedata
from pathlib import Path

import pytest

from mimetic_jax.data.files.class_folders import ClassFolders, FileSource
from tests.data.made import refused, write


@pytest.fixture
def make(tmp_path):
    """Writes files, each with its name as its content, others with a text, and folders."""

    def made(names, folders=(), **texts):
        for folder in folders:
            (tmp_path / folder).mkdir(parents=True)
        return write(tmp_path, {name: name for name in names} | texts)

    return made


def source(folder: Path, split: str) -> FileSource:
    return ClassFolders(folder).source(split)


def found(folder: Path, split: str) -> tuple[dict[str, str], list[str]]:
    """Class of each image by its name, in order, and the classes."""
    images = source(folder, split)
    read = [images.read(index) for index in range(len(images))]
    return {data.decode(): images.classes[label] for data, label in read}, list(images.classes)


TREE = [
    "train/dog/1.JPEG",
    "train/dog/2.jpg",
    "train/dog/deeper/3.png",
    "train/cat/1.JPEG",
    "train/cat/.hidden.JPEG",
    "train/cat/notes.txt",
    "val/cat/9.JPEG",
    "val/dog/9.JPEG",
    "README.md",
]


def test_a_tree_of_splits(make):
    """As ImageNet's, whose test images are unlabeled; empty folders below a class are ignored."""
    folder = make([*TREE, "test/unlabeled.JPEG"], ["val/ant", "train/cat/deeper"])
    images = {
        "train/cat/1.JPEG": "cat",
        "train/dog/1.JPEG": "dog",
        "train/dog/2.jpg": "dog",
        "train/dog/deeper/3.png": "dog",
    }
    assert found(folder, "train") == (images, ["cat", "dog"])
    images = {"val/cat/9.JPEG": "cat", "val/dog/9.JPEG": "dog"}
    assert found(folder, "validation") == (images, ["cat", "dog"])


def test_a_class_has_one_number_in_every_split_and_may_have_the_name_of_one(make):
    folder = make(["train/train/1.png", "train/bus/1.png", "val/train/2.png"])
    assert found(folder, "train")[1] == ["bus", "train"]
    assert found(folder, "validation") == ({"val/train/2.png": "train"}, ["bus", "train"])


@pytest.mark.parametrize(("train", "val"), [("NFC", "NFD"), ("NFD", "NFC"), ("NFD", "NFD")])
def test_names_are_compared_composed(make, train, val):
    """macOS decomposes the "é" of a name, Linux keeps what it gets: it is the same class."""
    stored = functools.partial(unicodedata.normalize, train)
    other = functools.partial(unicodedata.normalize, val)
    names = [stored("train/caf\u00e9/1.png"), "train/cage/1.png", "train/cafz/1.png"]
    folder = make([*names, other("train/caf\u00e9/2.png"), other("val/caf\u00e9/9.png")])
    images, classes = found(folder, "train")
    assert classes == ["cafz", "caf\u00e9", "cage"]
    assert sorted(images.values()) == sorted([*classes, "caf\u00e9"])
    assert set(found(folder, "validation")[0].values()) == {"caf\u00e9"}


def test_images_are_in_order_of_composed_names(tmp_path):
    names = ["caf\u00e9/1.png", "cafz/10.png", "cafz/2.png", "cafz/a/0.png", "x/\u00e9.png"]
    names += ["x/f.png"]
    for form in ("NFC", "NFD"):
        files = {unicodedata.normalize(form, name): b"" for name in names}
        images = source(write(tmp_path / form, files), "train")
        order = [unicodedata.normalize("NFC", name) for name in images.files]
        assert order == [*names[1:4], names[0], *names[:3:-1]]


def test_tiny_imagenet(make):
    names = [f"train/{c}/images/{c}_{i}.JPEG" for c in ("n01", "n02") for i in range(3)]
    names += ["val/images/val_0.JPEG", "val/images/val_1.JPEG", "val/images/e\u0301.JPEG"]
    boxes = {"train/n01/n01_boxes.txt": "n01_0.JPEG\t0\t0\t9\t9\n"}
    lines = "\ufeffval_0.JPEG\tn02\t0\t0\t9\t9\n\u00e9.JPEG\tn01\t0\t0\t9\t9\r\nval_1.JPEG\tn02\n"
    folder = make(names, **{"val/val_annotations.txt": lines}, **boxes)
    assert found(folder, "train") == ({name: name[6:9] for name in names[:6]}, ["n01", "n02"])
    images, classes = found(folder, "validation")
    assert classes == ["n01", "n02"]
    assert [images[name] for name in names[6:]] == ["n02", "n02", "n01"]
    (folder / "val/val_annotations.txt").write_text("val_0.JPEG n02\n")
    refused(lambda: found(folder, "validation"), "doesn't name the class of val/images/")
    (folder / "val/val_annotations.txt").write_bytes(b"val_0.JPEG\tcaf\xe9\n")
    refused(lambda: found(folder, "validation"), "val_annotations.txt, line 1 isn't UTF-8: byte 14")


@pytest.mark.parametrize("prefix", ["", "train/"])
def test_the_class_is_the_first_folder(make, prefix):
    """Also of a tree without splits, all of which is for training."""
    images = {f"{label}/{room}/1.png": label for label in ("cat", "dog") for room in ("in", "out")}
    hidden = ["cat/.thumbnails/1.png", ".cache/cat/1.png", "cat/.1.png", "__MACOSX/cat/1.png"]
    folder = make([prefix + name for name in [*images, *hidden]], [f"{prefix}cat/empty"])
    expected = {prefix + name: label for name, label in images.items()}
    assert found(folder, "train") == (expected, ["cat", "dog"])
    assert set(ClassFolders(folder).splits) == {"train"}


def test_other_names_of_splits(tmp_path):
    for split, names in {
        "train": ("Train", "training"),
        "validation": ("Val", "valid", "VALIDATION", "dev"),
        "test": ("Test", "testing"),
    }.items():
        for name in names:
            folder = write(tmp_path / name, {f"{name}/cat/1.png": "1"})
            assert found(folder, split) == ({"1": "cat"}, ["cat"])


@pytest.mark.parametrize(
    ("names", "folders", "split", "words"),
    [
        ([*TREE, "docs/a/1.png"], [], "train", "images in docs, beside the folders of splits"),
        (["a/1.png", "b/1.png", "Test/1.png"], [], "train", "images in a, b, beside"),
        (["cat/train/1.png", "dog/test/2.png"], [], "train", "split in another folder, cat/train"),
        (["README.md"], [], "train", "holds no images"),
        (TREE, [], "minival", "no images of split 'minival', only of: train, validation"),
        (TREE, ["train/ant"], "train", "class folder ant holds no images"),
        ([*TREE, "val/ant/1.png"], [], "validation", "has class ant, which train lacks"),
        (["train/1.png", "train/dog/1.png"], [], "train", "train/1.png is in no class folder"),
        (["a/train1.png", "b/x_test.png"], [], "train", "names of its files (test, train)"),
    ],
)
def test_files_that_form_no_split_are_refused(make, names, folders, split, words):
    refused(lambda: source(make(names, folders), split), words)


def test_suffixes_of_images_and_other_files(make):
    """Of browsers, cameras and old systems; hidden files are no others."""
    images = [f"cat/{n}{end}" for n, end in enumerate((".JPG", ".jfif", ".jpe", ".gif", ".TIF"))]
    others = ["cat/Thumbs.db", "cat/x", "notes.txt", "cat/.DS_Store", "__MACOSX/cat/._0.jpg"]
    folder = make([*images, *others, "cat/photo.HEIC"])
    assert found(folder, "train") == (dict.fromkeys(images, "cat"), ["cat"])
    unread = dict.fromkeys(("notes.txt", "cat/Thumbs.db", "cat/x"), "no image")
    unread["cat/photo.HEIC"] = "not read here, save them as JPEG"
    assert ClassFolders(folder).unread == unread
    (folder / "other").mkdir()
    (folder / "other/1.heic").touch()
    refused(lambda: ClassFolders(folder / "other"), "no images", "1.heic: not read here, save them")


def test_links_to_folders_elsewhere_are_followed(tmp_path):
    """As in a subset of a data set that is made of links."""
    whole = write(tmp_path / "whole", {name: name for name in TREE})
    subset = tmp_path / "subset"
    (subset / "train").mkdir(parents=True)
    for name in ("train/dog", "train/cat", "val"):
        (subset / name).symlink_to(whole / name)
    for split in ("train", "validation"):
        assert found(subset, split) == found(whole, split)


def test_links_to_nothing_and_pointers_of_git_lfs_are_named(make):
    folder = make(["cat/1.png"], **{"dog/2.png": "version https://git-lfs.github.com/spec/v1\n"})
    (folder / "dead").mkdir()
    (folder / "dead/3.png").symlink_to("no.png")
    images = source(folder, "train")
    assert images.read(0)[0] == b"cat/1.png"
    refused(lambda: images.read(1), f"{folder}/dead/3.png can't be read (No such file")
    refused(lambda: images.read(2), "dog/2.png is a Git LFS pointer")


def test_a_folder_behind_a_link_counts_once_under_its_own_name(make):
    """Also one above: such a link gave every image again, as one of a class of the link's name."""
    folder = make(["data/zebra/1.png", "else/dog/2.png"])
    (folder / "data" / "ass").symlink_to("zebra")
    (folder / "data" / "dog").symlink_to(folder / "else" / "dog")
    (folder / "data" / "latest").symlink_to(".")
    (folder / "data" / "zebra" / "up").symlink_to("..")
    expected = {"data/zebra/1.png": "zebra", "else/dog/2.png": "dog"}
    assert found(folder / "data", "train") == (expected, ["dog", "zebra"])


def test_an_image_counts_once(make):
    """Under its own name rather than a link's, and where it is tested on."""
    names = {"test/dog/9.png": "a", "train/cat/1.png": "b", "train/dog/0.png": "c"}
    copies = {"train/dog/2.png": "a", "train/dog/3.png": "c"}
    folder = make(["train/cat/7.png"], **names, **copies)
    (folder / "train/cat/0.png").symlink_to(folder / "train/cat/1.png")
    tree = ClassFolders(folder)
    tree.count_once()
    assert {name for images in tree.splits.values() for name, _ in images} == {
        *names,
        "train/cat/7.png",
    }
    assert {name: tree.unread[name] for name in sorted(tree.unread)} == dict.fromkeys(
        (
            "train/cat/0.png of train/cat/1.png",
            "train/dog/2.png of test/dog/9.png",
            "train/dog/3.png of train/dog/0.png",
        ),
        "copies",
    )
