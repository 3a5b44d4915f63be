"""Finding images: every form under every path, and an error that lists all paths searched."""

from pathlib import Path

import numpy as np
import pytest

from mimetic_jax.data.files import open as opening
from mimetic_jax.data.files.open import open_source
from mimetic_jax.errors import InputError
from tests.data.made import tar_of, zip_of

NAMES = ["train/dog/1.JPEG", "train/cat/1.JPEG", "train/cat/2.JPEG", "val/dog/3.JPEG"]


def write_tree(root: Path) -> None:
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())


def write_zip(path: Path) -> None:
    path.write_bytes(zip_of([(f"whatever/{name}", name.encode()) for name in NAMES]))


@pytest.mark.parametrize("place", ["pets/", "", "pets.tar", "pets.zip", "oxford/", "oxford.zip"])
def test_every_path_is_searched(tmp_path: Path, place: str) -> None:
    if place.endswith(".tar"):
        (tmp_path / place).write_bytes(tar_of({name: name.encode() for name in NAMES}))
    elif place.endswith(".zip"):
        write_zip(tmp_path / place)
    else:
        write_tree(tmp_path / place)
    source = open_source("pets", str(tmp_path), "train", 2, folder="oxford")
    content = {source.read(index) for index in range(len(source))}
    assert content == {(NAMES[0].encode(), 1), (NAMES[1].encode(), 0), (NAMES[2].encode(), 0)}
    validation = open_source("pets", str(tmp_path), "validation", 2, folder="oxford")
    assert validation.read(0) == (NAMES[3].encode(), 1)


def test_data_dir_may_be_an_archive(tmp_path: Path) -> None:
    write_zip(tmp_path / "some.zip")
    source = open_source("pets", str(tmp_path / "some.zip"), "train", 2)
    assert np.bincount(source.labels).tolist() == [2, 1]


def test_imagenet_as_downloaded(tmp_path: Path) -> None:
    inner = {
        f"{synset}.tar": tar_of({f"{synset}_{number}.JPEG": b"x" for number in range(2)})
        for synset in ("n02", "n01")
    }
    (tmp_path / opening.TRAIN).write_bytes(tar_of(inner))
    (tmp_path / opening.VALIDATION).write_bytes(tar_of({"ILSVRC2012_val_00000001.JPEG": b"y"}))
    (tmp_path / opening.LABELS).write_text("n02\n")
    train = open_source("imagenet2012", str(tmp_path), "train", 2)
    assert train.labels.tolist() == [1, 1, 0, 0]
    assert train.name(2).endswith(f"{opening.TRAIN}:n01/n01_0.JPEG")
    with pytest.raises(InputError, match="holds 1 classes, expected 2"):
        open_source("imagenet2012", str(tmp_path), "validation", 2)
    assert open_source("imagenet2012", str(tmp_path), "val", 1).read(0) == (b"y", 0)
    with pytest.raises(InputError, match=r"no imagenet2012 \(test\)"):
        open_source("imagenet2012", str(tmp_path), "test", 2)


def test_the_error_lists_the_paths_searched(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        open_source("imagenet2012", str(tmp_path), "train", 1000)
    for words in (
        f"no imagenet2012 (train) in {tmp_path}",
        "imagenet2012/VERSION/dataset_info.json",
        "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar",
        "by hand",
        "imagenet2012.zip",
        "train/",
    ):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"\(no such folder\).*pets\.zip.*oxford\.zip") as caught:
        open_source("pets", str(tmp_path / "nowhere"), "train", 37, folder="oxford")
    assert "ILSVRC" not in str(caught.value)
