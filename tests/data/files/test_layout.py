"""Trees of images: their classes, their splits and their errors."""

import functools
import os
import pickle
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.files.folder import Folder
from mimetic_jax.data.files.layout import find_split, other_files, splits_of

Make = Callable[..., Folder]


def write(root: Path, files: dict[str, bytes], folders: list[str]) -> Folder:
    for folder in folders:
        (root / folder).mkdir(parents=True)
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return Folder(root)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda names, folders=(), **texts: write(
        tmp_path,
        {name: name.encode() for name in names} | {k: v.encode() for k, v in texts.items()},
        list(folders),
    )


def found(tree: Folder, split: str) -> tuple[dict[str, str], list[str]]:
    """Class of each image by file name, and the classes."""
    members, labels, classes = find_split(tree, split)
    names = [tree.read(index).decode() for index in members]
    return dict(zip(names, labels, strict=True)), classes


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


@pytest.mark.parametrize("prefix", ["", "mine/"])
def test_a_tree_of_splits(make: Make, prefix: str) -> None:
    tree = make([prefix + name for name in TREE])
    images, classes = found(tree, "train")
    assert classes == ["cat", "dog"]
    assert images == {
        f"{prefix}train/dog/1.JPEG": "dog",
        f"{prefix}train/dog/2.jpg": "dog",
        f"{prefix}train/dog/deeper/3.png": "dog",
        f"{prefix}train/cat/1.JPEG": "cat",
    }
    for name in ("val", "validation"):
        images, classes = found(tree, name)
        assert images == {f"{prefix}val/cat/9.JPEG": "cat", f"{prefix}val/dog/9.JPEG": "dog"}


def test_a_class_has_one_number_in_every_split(make: Make) -> None:
    tree = make([*TREE, "test/dog/1.JPEG"])
    assert found(tree, "test") == ({"test/dog/1.JPEG": "dog"}, ["cat", "dog"])


def test_a_class_may_have_the_name_of_a_split(make: Make) -> None:
    tree = make(["train/train/1.png", "train/bus/1.png", "val/train/2.png"])
    assert found(tree, "train")[1] == ["bus", "train"]
    assert found(tree, "val")[0] == {"val/train/2.png": "train"}


@pytest.mark.parametrize(("train", "val"), [("NFC", "NFD"), ("NFD", "NFC"), ("NFD", "NFD")])
def test_names_are_compared_composed(make: Make, train: str, val: str) -> None:
    """macOS decomposes the "é" of a name, Linux keeps what it gets: it is the same class."""
    stored = functools.partial(unicodedata.normalize, train)
    other = functools.partial(unicodedata.normalize, val)
    names = [stored("train/caf\u00e9/1.png"), "train/cage/1.png", "train/cafz/1.png"]
    tree = make([*names, other("train/caf\u00e9/2.png"), other("val/caf\u00e9/9.png")])
    images, classes = found(tree, "train")
    assert classes == ["cafz", "caf\u00e9", "cage"]
    assert sorted(images.values()) == sorted([*classes, "caf\u00e9"])
    assert set(found(tree, "val")[0].values()) == {"caf\u00e9"}


def test_the_order_of_files_is_that_of_composed_names(tmp_path: Path) -> None:
    names = ["caf\u00e9/1.png", "cafz/1.png", "x/\u00e9.png", "x/f.png"]
    orders = []
    for form in ("NFC", "NFD"):
        tree = write(tmp_path / form, {unicodedata.normalize(form, n): b"" for n in names}, [])
        orders.append([unicodedata.normalize("NFC", name) for name in tree.files])
    assert orders == [["cafz/1.png", "caf\u00e9/1.png", "x/f.png", "x/\u00e9.png"]] * 2


def test_annotations_name_composed_and_decomposed_files(make: Make) -> None:
    names = ["train/n01/images/1.JPEG", "val/images/e\u0301.JPEG"]
    tree = make(names, **{"val/val_annotations.txt": "\u00e9.JPEG\tn01\n"})
    assert set(found(tree, "val")[0].values()) == {"n01"}


def test_tiny_imagenet(make: Make) -> None:
    names = [f"tiny/train/{c}/images/{c}_{i}.JPEG" for c in ("n02", "n01") for i in range(3)]
    names += [f"tiny/val/images/val_{i}.JPEG" for i in range(3)]
    boxes = {"tiny/train/n01/n01_boxes.txt": "n01_0.JPEG\t0\t0\t9\t9\n"}
    lines = (
        "val_0.JPEG\tn02\t0\t0\t9\t9\nval_2.JPEG\tn01\t0\t0\t9\t9\nval_1.JPEG\tn02\t1\t1\t2\t2\n"
    )
    tree = make(names, **{"tiny/val/val_annotations.txt": lines}, **boxes)
    images, classes = found(tree, "train")
    assert classes == ["n01", "n02"]
    assert images == {name: name.split("/")[2] for name in names[:6]}
    images, classes = found(tree, "validation")
    assert classes == ["n01", "n02"]
    assert [images[f"tiny/val/images/val_{i}.JPEG"] for i in range(3)] == ["n02", "n02", "n01"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("a.JPEG\tn01\n", r"doesn't name b\.JPEG"), ("a.JPEG n01\n", "without FILE<tab>CLASS")],
)
def test_bad_annotations_are_refused(make: Make, text: str, words: str) -> None:
    names = ["train/n01/images/1.JPEG", "val/images/a.JPEG", "val/images/b.JPEG"]
    tree = make(names, **{"val/val_annotations.txt": text})
    with pytest.raises(InputError, match=words):
        find_split(tree, "val")


@pytest.mark.parametrize("prefix", ["", "sample/"])
def test_a_tree_without_splits_is_for_training(make: Make, prefix: str) -> None:
    tree = make([f"{prefix}n02/x.JPEG", f"{prefix}n01/y.JPEG"], [f"{prefix}n02"])
    images, classes = found(tree, "train")
    assert classes == ["n01", "n02"]
    assert images == {f"{prefix}n02/x.JPEG": "n02", f"{prefix}n01/y.JPEG": "n01"}
    with pytest.raises(InputError, match="no images of split 'val', only of: train"):
        find_split(tree, "val")


@pytest.mark.parametrize("prefix", ["", "mine/", "my/own/", "train/", "mine/train/"])
def test_the_class_is_the_first_folder(make: Make, prefix: str) -> None:
    images = {f"{label}/{room}/1.png": label for label in ("cat", "dog") for room in ("in", "out")}
    hidden = ["cat/.thumbnails/1.png", ".cache/cat/1.png", "cat/.1.png"]
    tree = make([prefix + name for name in [*images, *hidden]])
    expected = {prefix + name: label for name, label in images.items()}
    assert found(tree, "train") == (expected, ["cat", "dog"])


def test_the_classes_are_those_of_torchvision(tmp_path: Path) -> None:
    names = ["cat/1.png", "cat/extra/2.png", "dog/a/b/3.png"]
    write(tmp_path, dict.fromkeys(names, b""), [])
    images, classes = {}, sorted(entry.name for entry in os.scandir(tmp_path) if entry.is_dir())
    for label in classes:
        for folder, _, files in os.walk(tmp_path / label):
            images |= {
                (Path(folder) / file).relative_to(tmp_path).as_posix(): label for file in files
            }
    tree = Folder(tmp_path)
    members, labels, ours = find_split(tree, "train")
    assert dict(zip((tree.files[index] for index in members), labels, strict=True)) == images
    assert ours == classes


@pytest.mark.parametrize(
    ("folder", "split"),
    [
        *((name, "train") for name in ("Train", "training")),
        *((name, "validation") for name in ("Val", "valid", "VALIDATION", "dev")),
        *((name, "test") for name in ("Test", "testing")),
    ],
)
def test_other_names_of_splits(make: Make, folder: str, split: str) -> None:
    tree = make([f"{folder}/cat/1.png"], [f"{folder}/cat"])
    assert found(tree, split) == ({f"{folder}/cat/1.png": "cat"}, ["cat"])
    assert splits_of(tree) == {split}


@pytest.mark.parametrize(
    ("names", "folders", "split", "words"),
    [
        ([*TREE, "docs/a/1.png"], [], "train", r"images in docs, beside .* \(train, val\)"),
        (["a/1.png", "b/1.png", "Test/1.png"], [], "train", r"images in a, b, beside .* \(Test\)"),
        (["cat/train/1.png", "dog/test/2.png"], [], "train", "split in another folder, cat/train"),
        (["x/train/cat/1.png", "y/2.png"], [], "train", "split in another folder, x/train/cat"),
        (["README.md"], [], "train", "holds no images"),
        (TREE, [], "minival", "no images of split 'minival', only of: train, validation"),
        (TREE, ["train/ant"], "train", "class folder train/ant holds no images"),
        (["dog/1.png"], ["ant"], "train", "class folder ant holds no images"),
        ([*TREE, "val/ant/1.png"], [], "val", "val has class ant, which train lacks"),
        (["train/1.png", "train/dog/1.png"], [], "train", r"train/1\.png is in no class folder"),
        (["1.png"], [], "train", r": 1\.png is in no class folder"),
        (["a/train1.png", "b/x_test.png"], [], "train", r"names of its files \(test, train\)"),
    ],
)
def test_files_that_form_no_split_are_refused(
    make: Make, names: list[str], folders: list[str], split: str, words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        find_split(make(names, folders), split)
    assert "\n" not in str(caught.value)


def test_suffixes_of_images_and_the_count_of_other_files(make: Make) -> None:
    """Of browsers, cameras and old systems; hidden files aren't counted."""
    images = [f"cat/{n}{end}" for n, end in enumerate((".JPG", ".jfif", ".jpe", ".gif", ".TIF"))]
    others = ["cat/Thumbs.db", "cat/x", "notes.txt", "cat/.DS_Store", "__MACOSX/cat/._0.jpg"]
    tree = make([*images, *others])
    assert found(tree, "train") == (dict.fromkeys(images, "cat"), ["cat"])
    assert other_files(tree) == "other files, left out: 3 (.db 1, .txt 1, no suffix 1)"


def test_annotations_may_begin_with_a_byte_order_mark(make: Make) -> None:
    names = ["train/n01/images/1.JPEG", "val/images/a.JPEG"]
    tree = make(names, **{"val/val_annotations.txt": "\ufeffa.JPEG\tn01\r\n"})
    assert found(tree, "val") == ({"val/images/a.JPEG": "n01"}, ["n01"])


def test_an_empty_folder_of_another_split_is_ignored(make: Make) -> None:
    assert found(make(TREE, ["val/ant", "train/cat/deeper"]), "train")[1] == ["cat", "dog"]


def test_a_folder_lists_its_files_in_order(tmp_path: Path) -> None:
    names = ["b/2.png", "b/10.png", "a/1.png", "c.png", "a/x/0.png"]
    folder = pickle.loads(pickle.dumps(write(tmp_path, {n: n.encode() for n in names}, ["d"])))
    assert folder.files == ["c.png", "a/1.png", "a/x/0.png", "b/10.png", "b/2.png"]
    assert folder.folders == ["a", "b", "d", "a/x"]
    assert folder.read(4) == b"b/2.png"


def test_links_to_folders_elsewhere_are_followed(tmp_path: Path) -> None:
    """As in a subset of a data set that is made of links."""
    whole = write(tmp_path / "whole", dict.fromkeys(TREE, b""), [])
    subset = tmp_path / "subset"
    (subset / "train").mkdir(parents=True)
    for name in ("dog", "cat"):
        (subset / "train" / name).symlink_to(tmp_path / "whole" / "train" / name)
    (subset / "val").symlink_to(tmp_path / "whole" / "val")
    names = [name for name in whole.files if name.startswith(("train", "val"))]
    assert Folder(subset).files == names
    assert Folder(subset).folders == whole.folders


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(TREE, b""), [])
    (tmp_path / "train/dog/dead.png").symlink_to("no.png")
    tree = Folder(tmp_path)
    with pytest.raises(InputError, match=r"can't read .*train/dog/dead\.png \(No such file"):
        tree.read(tree.files.index("train/dog/dead.png"))
