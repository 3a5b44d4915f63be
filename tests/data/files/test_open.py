"""Finding images: in every folder that is searched, and an error that lists them."""

import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from mimetic_jax.base.errors import InputError
from mimetic_jax.data import describe_own
from mimetic_jax.data.files.open import open_source
from tests.data.made import refused

NAMES = ["train/dog/1.JPEG", "train/cat/1.JPEG", "train/cat/2.JPEG", "val/dog/3.JPEG"]


def write_tree(root: Path) -> None:
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())


@pytest.mark.parametrize("place", ["pets/", "", "oxford/"])
def test_every_path_is_searched(tmp_path: Path, place: str) -> None:
    write_tree(tmp_path / place)
    source = open_source("pets", str(tmp_path), "train", 2, folder="oxford")
    content = {source.read(index) for index in range(len(source))}
    assert content == {(NAMES[0].encode(), 1), (NAMES[1].encode(), 0), (NAMES[2].encode(), 0)}
    validation = open_source("pets", str(tmp_path), "validation", 2, folder="oxford")
    assert validation.read(0) == (NAMES[3].encode(), 1)


def test_the_error_lists_the_paths_searched(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        open_source("imagenet2012", str(tmp_path), "train", 1000, origin="it comes from a camera")
    for words in (
        f"no imagenet2012 (train) in {tmp_path}",
        "imagenet2012/VERSION/dataset_info.json",
        "train/",
        "; it comes from a camera",
    ):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"\(no such folder\).*pets/train/, oxford/train/"):
        open_source("pets", str(tmp_path / "nowhere"), "train", 37, folder="oxford")


@pytest.mark.parametrize("name", ["my pets.tar", "pets.tar.gz", "pets.TGZ", "pets.zip"])
def test_the_command_of_the_error_unpacks_an_archive(tmp_path: Path, name: str) -> None:
    write_tree(tmp_path / "tree")
    path = tmp_path / name
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as packed:
            for file in NAMES:
                packed.write(tmp_path / "tree" / file, file)
    else:
        with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as tar:
            tar.add(tmp_path / "tree", ".")
    words = f"{path} is an archive: unpack it first"
    message = refused(lambda: describe_own("folder", str(path), 0), words)
    assert message == refused(lambda: open_source("pets", str(path), "train", 2), words)
    command = message.rpartition(": ")[2]
    if command.startswith("mkdir"):
        subprocess.run(command, shell=True, check=True)
        assert len(open_source("pets", str(path.with_name(name.split(".")[0])), "train", 2)) == 3
    else:
        assert command == f"unzip {path} -d {tmp_path / 'pets'}"
