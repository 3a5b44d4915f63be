"""Finds the images of a data set in a folder, in any of the known forms."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mimetic_jax.data.files import array_record
from mimetic_jax.data.files.archive import Archive
from mimetic_jax.data.files.decode import LIMITS, Limits
from mimetic_jax.data.files.folder import Folder
from mimetic_jax.data.files.layout import Container, text_lines
from mimetic_jax.data.files.ranged import ranged
from mimetic_jax.data.files.sources import FileSource, ImageSource, file_source, labeled
from mimetic_jax.data.home import AnyPath, located
from mimetic_jax.data.remote import hint
from mimetic_jax.errors import InputError

TRAIN, VALIDATION = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
LABELS = "imagenet_2012_validation_synset_labels.txt"
_IMAGENET = "imagenet2012"
_ARCHIVES = (".tar", ".zip")
_IN_BUCKETS = (
    "only a .tar or .zip is read in a bucket; for folders and array_record, mount it, such as by "
    "gcsfuse, and give the mounted folder"
)


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
        data_dir: where to look; "~" is the home folder. In a bucket, gs://… or s3://…, only tars
            and zips are found.
        split: "train", "validation" (or "val") or "test", or one in TFDS notation.
        num_classes: expected number of classes.
        folder: FOLDER, the name of the published folder or archive, if it isn't NAME.
        limits: of the size of an image's file.

    Raises:
        InputError: nothing is found (the error lists the paths), or the split or number of classes
            isn't the one asked for.
    """
    root = located(data_dir)
    if isinstance(root, Path) and (prepared := array_record.find(root, name)):
        return array_record.ArrayRecordSource(prepared, split, num_classes)
    validation = root / VALIDATION
    if name == _IMAGENET and split in ("val", "validation") and validation.is_file():
        return imagenet_validation(validation, num_classes, limits)
    names = (name, folder) if folder else (name,)
    archives = [root / f"{name}{suffix}" for name in names for suffix in _ARCHIVES]
    if name == _IMAGENET and split == "train":
        archives.insert(0, root / TRAIN)
    for archive in (root, *archives):
        if archive.is_file():
            return file_source(Archive(archive, limits), split, num_classes)
    for tree in (*(root / name for name in names), root):
        if isinstance(tree, Path) and any(
            (tree / known).is_dir() for known in ("train", "val", "validation", "test")
        ):
            return file_source(Folder(tree, limits), split, num_classes)
    raise InputError(_nothing_found(name, names, root, split))


def open_container(path: AnyPath, limits: Limits = LIMITS) -> Container:
    """An archive, or a folder on a disk.

    Raises:
        InputError: the archive can't be read, or it is a folder in a bucket.
    """
    if path.is_file():
        return Archive(path, limits)
    if not isinstance(path, Path):
        raise InputError(f"{path} is a folder: {_IN_BUCKETS}")
    return Folder(path, limits)


def _nothing_found(name: str, names: tuple[str, ...], root: AnyPath, split: str) -> str:
    archives = ", ".join(f"{name}{suffix}" for name in names for suffix in _ARCHIVES)
    tars = ""
    if name == _IMAGENET:
        tars = (
            f"{TRAIN} and {VALIDATION} (download both by hand from "
            "image-net.org, which requires a login), "
        )
    if not isinstance(root, Path):
        return f"no {name} ({split}) in {root}: looked for {tars}{archives}; {_IN_BUCKETS}"
    trees = ", ".join(f"{name}/train/" for name in names)
    command = hint(name, str(root))
    return (
        f"no {name} ({split}) in {root}{'' if root.is_dir() else ' (no such folder)'}: looked for "
        f"{name}/VERSION/dataset_info.json (TFDS), {tars}{archives}, {trees}, train/"
        f"{command and f'; or {command}'}"
    )


def imagenet_validation(path: AnyPath, num_classes: int, limits: Limits = LIMITS) -> FileSource:
    """The images of ILSVRC2012_img_val.tar, a flat tar, in the order of their names.

    The labels are read from imagenet_2012_validation_synset_labels.txt in the tar's folder: lines
    of `FILENAME SYNSET`, or of `SYNSET` in the order of the file names. Without that file the list
    that comes with TFDS is used. Classes are numbered in the order of the synsets, as in training.

    Raises:
        InputError: the tar is damaged, or the labels don't match its images.
    """
    tar = Archive(path, limits)
    members = sorted(
        (index for index, name in enumerate(tar.files) if name.lower().endswith(".jpeg")),
        key=tar.files.__getitem__,
    )
    listing = path.with_name(LABELS)
    if not listing.is_file():
        listing = _tfds_listing(listing)
    file = ranged(listing)
    lines = [line.split() for line in text_lines(file.read(0, file.size), str(listing))]
    if all(len(line) == 1 for line in lines) and len(lines) == len(members):
        synsets = [line[0] for line in lines]
    elif all(len(line) == 2 for line in lines):
        by_name = {line[0]: line[1] for line in lines}
        names = [tar.files[index].rpartition("/")[2] for index in members]
        missing = [name for name in names if name not in by_name]
        if missing:
            raise InputError(f"{listing} doesn't name {missing[0]} of {path}")
        synsets = [by_name[name] for name in names]
    else:
        raise InputError(
            f"{listing} holds {len(lines)} lines for the {len(members)} images of {path}: "
            "expected lines of SYNSET, one per image, or of FILENAME SYNSET"
        )
    return labeled(tar, members, synsets, sorted({line[-1] for line in lines}), num_classes)


def _tfds_listing(wanted: AnyPath) -> Path:
    package = importlib.util.find_spec("tensorflow_datasets")
    if package and package.origin:
        path = Path(package.origin).parent / "datasets" / "imagenet2012" / "validation_labels.txt"
        if path.is_file():
            return path
    raise InputError(f"no labels for the validation images: {wanted} is missing")
