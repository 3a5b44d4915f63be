"""Finds the images of a published data set in a folder."""

from __future__ import annotations

import shlex
from pathlib import Path

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.files import array_record
from mimetic_jax.data.files.folder import Folder
from mimetic_jax.data.files.sources import ImageSource, file_source
from mimetic_jax.data.home import expanded

_TAR = "mkdir {1} && tar -xf {0} -C {1}"
_UNPACKED_BY = {".zip": "unzip {0} -d {1}", ".tar": _TAR, ".tgz": _TAR}


def open_source(
    name: str, data_dir: str, split: str, num_classes: int, *, folder: str = "", origin: str = ""
) -> ImageSource:
    """Open the images of one split, encoded.

    The first of these that is found is read:

    1. `data_dir/NAME/VERSION/`, as TFDS prepares it with file_format="array_record". Splits may be
       in TFDS notation: "train+validation", "train[:10%]".
    2. a tree `train/CLASS/...`, in `data_dir/NAME`, `data_dir/FOLDER` or `data_dir` itself; see
       `layout.find_split` for the layouts of trees.

    Args:
        name: NAME of the data set: a TFDS name such as "imagenet2012" or "food101",
            "tiny_imagenet", or any name for data of one's own.
        data_dir: where to look; "~" is the home folder.
        split: "train", "validation" (or "val") or "test", or one in TFDS notation.
        num_classes: expected number of classes.
        folder: FOLDER, the name of the published folder, if it isn't NAME.
        origin: where the images come from, in the error if they aren't found.

    Raises:
        InputError: nothing is found (the error lists the paths), or the split or number of classes
            isn't the one asked for.
    """
    root = expanded(data_dir)
    check_unpacked(root)
    if prepared := array_record.find(root, name):
        return array_record.ArrayRecordSource(prepared, split, num_classes)
    names = (name, folder) if folder else (name,)
    for tree in (*(root / name for name in names), root):
        if any((tree / known).is_dir() for known in ("train", "val", "validation", "test")):
            return file_source(Folder(tree), split, num_classes)
    trees = ", ".join(f"{name}/train/" for name in names)
    raise InputError(
        f"no {name} ({split}) in {root}{'' if root.is_dir() else ' (no such folder)'}: looked for "
        f"{name}/VERSION/dataset_info.json (TFDS), {trees}, train/{origin and f'; {origin}'}"
    )


def check_unpacked(path: Path) -> None:
    """Check that this is no archive: files are read from folders alone.

    Raises:
        InputError: it is one; the error has the command that unpacks it.
    """
    suffix = ".tar" if ".tar" in path.suffixes else path.suffix.lower()
    if suffix in _UNPACKED_BY and path.is_file():
        target = path.with_name(path.name.partition(".")[0])
        command = _UNPACKED_BY[suffix].format(shlex.quote(str(path)), shlex.quote(str(target)))
        raise InputError(f"{path} is an archive: unpack it first, and give {target}: {command}")
