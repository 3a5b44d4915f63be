"""Finds the images of a data set in a folder, in any of the known forms."""

from __future__ import annotations

from pathlib import Path

from mimetic_jax.data.files import array_record, imagenet
from mimetic_jax.data.files.archive import Archive
from mimetic_jax.data.files.decode import LIMITS, Limits
from mimetic_jax.data.files.folder import Folder
from mimetic_jax.data.files.sources import ImageSource, file_source
from mimetic_jax.data.home import expanded
from mimetic_jax.data.remote import hint
from mimetic_jax.errors import InputError

_ARCHIVES = (".tar", ".zip")


def open_source(
    name: str,
    data_dir: str,
    split: str,
    num_classes: int,
    *,
    folder: str = "",
    limits: Limits = LIMITS,
) -> ImageSource:
    """Open the images of one split, encoded.

    The first of these that is found is read; nothing is unpacked or written:

    1. `data_dir` itself, if it is a tar or zip.
    2. `data_dir/NAME/VERSION/`, as TFDS prepares it with file_format="array_record". Splits may be
       in TFDS notation: "train+validation", "train[:10%]".
    3. `ILSVRC2012_img_train.tar` and `ILSVRC2012_img_val.tar`, for imagenet2012.
    4. `NAME.tar`, `NAME.zip`, `FOLDER.tar` or `FOLDER.zip`.
    5. a tree `train/CLASS/...`, in `data_dir/NAME`, `data_dir/FOLDER` or `data_dir` itself; see
       `layout.find_split` for the layouts of archives and trees.

    Args:
        name: NAME of the data set: a TFDS name such as "imagenet2012" or "food101",
            "tiny_imagenet", or any name for data of one's own.
        data_dir: where to look; "~" is the home folder.
        split: "train", "validation" (or "val") or "test", or one in TFDS notation.
        num_classes: expected number of classes.
        folder: FOLDER, the name of the published folder or archive, if it isn't NAME.
        limits: of the size of an image's file.

    Raises:
        InputError: nothing is found (the error lists the paths), or the split or number of classes
            isn't the one asked for.
    """
    root = expanded(data_dir)
    if root.is_file():
        return file_source(Archive(root, limits), split, num_classes)
    prepared = array_record.find(root, name)
    if prepared:
        return array_record.ArrayRecordSource(prepared, split, num_classes)
    if name == "imagenet2012":
        train, validation = root / imagenet.TRAIN, root / imagenet.VALIDATION
        if split == "train" and train.is_file():
            return file_source(Archive(train, limits), split, num_classes)
        if split in ("val", "validation") and validation.is_file():
            return imagenet.validation(validation, num_classes, limits)
    names = (name, folder) if folder else (name,)
    for archive in (root / f"{name}{suffix}" for name in names for suffix in _ARCHIVES):
        if archive.is_file():
            return file_source(Archive(archive, limits), split, num_classes)
    for tree in (*(root / name for name in names), root):
        if any((tree / known).is_dir() for known in ("train", "val", "validation", "test")):
            return file_source(Folder(tree, limits), split, num_classes)
    raise InputError(_nothing_found(name, names, root, split))


def _nothing_found(name: str, names: tuple[str, ...], root: Path, split: str) -> str:
    archives = ", ".join(f"{name}{suffix}" for name in names for suffix in _ARCHIVES)
    trees = ", ".join(f"{name}/train/" for name in names)
    tars = ""
    if name == "imagenet2012":
        tars = (
            f"{imagenet.TRAIN} and {imagenet.VALIDATION} (download both by hand from "
            "image-net.org, which requires a login), "
        )
    command = hint(name, str(root))
    return (
        f"no {name} ({split}) in {root}{'' if root.is_dir() else ' (no such folder)'}: looked for "
        f"{name}/VERSION/dataset_info.json (TFDS), {tars}{archives}, {trees}, train/"
        f"{command and f'; or {command}'}"
    )
