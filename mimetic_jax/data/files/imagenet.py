"""ImageNet's validation images, as downloaded: a flat tar whose labels are in another file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mimetic_jax.data.files.archive import Archive
from mimetic_jax.data.files.decode import LIMITS, Limits
from mimetic_jax.data.files.layout import text_lines
from mimetic_jax.data.files.sources import FileSource, labeled
from mimetic_jax.errors import InputError
from mimetic_jax.host.files import read_bytes

TRAIN, VALIDATION = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
LABELS = "imagenet_2012_validation_synset_labels.txt"


def validation(path: Path, num_classes: int, limits: Limits = LIMITS) -> FileSource:
    """The images of ILSVRC2012_img_val.tar, in the order of their names.

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
    lines = [line.split() for line in text_lines(read_bytes(listing), str(listing))]
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


def _tfds_listing(wanted: Path) -> Path:
    package = importlib.util.find_spec("tensorflow_datasets")
    if package and package.origin:
        path = Path(package.origin).parent / "datasets" / "imagenet2012" / "validation_labels.txt"
        if path.is_file():
            return path
    raise InputError(f"no labels for the validation images: {wanted} is missing")
