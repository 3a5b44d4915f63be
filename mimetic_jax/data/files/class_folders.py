"""Images of a folder, each labeled by the folder that it is in."""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from mimetic_jax.base.errors import InputError, check_no_pointer
from mimetic_jax.data.paths import SPLITS, describe_skipped, group_copies, split_in_name, walk
from mimetic_jax.data.textfiles import read_parts

_JPEG = (".jpeg", ".jpg", ".jpe", ".jfif")
_SUFFIXES = (*_JPEG, ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
_PHOTOS = (".heic", ".heif", ".avif", ".jxl", ".jp2", ".dng", ".cr2", ".cr3", ".nef", ".arw")
"""Suffixes of images that aren't read."""


@dataclasses.dataclass(frozen=True, eq=False)
class FileSource:
    """Images below a folder, by their paths relative to it, and their labels, int32 [N]."""

    folder: Path
    files: tuple[str, ...]
    labels: np.ndarray
    classes: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def __len__(self) -> int:
        return len(self.files)

    def name(self, index: int) -> str:
        return f"{self.folder}/{self.files[index]}"

    def read(self, index: int) -> tuple[bytes, int]:
        try:
            data = (self.folder / self.files[index]).read_bytes()
        except OSError as error:
            raise InputError(f"{self.name(index)} can't be read ({error.strerror})") from error
        check_no_pointer(self.name(index), data)
        return data, int(self.labels[index])

    def outline(self) -> bytes:
        return self.labels.tobytes()


class ClassFolders:
    """The images of a folder by their splits, "train", "validation" and "test".

    Three layouts are known: `SPLIT/CLASS/...`, as ImageFolder expects it; `CLASS/...` without
    splits, which is "train"; and Tiny ImageNet's, where `val/val_annotations.txt` names the class
    of each file in `val/images`. Folders below a class belong to it. A split's folder is named
    train or training; val, valid, validation or dev, which mean the same; test or testing, in
    capitals or not. What starts with a dot is left out, symbolic links are followed: each real
    folder counts once.

    Images are in order of their names, folder by folder, and classes likewise, whether names are
    stored composed or decomposed.

    Attributes:
        splits: by name, path and class of each image.
        unread: the files that aren't read, hidden ones excepted, and why.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.splits: dict[str, list[tuple[str, str]]] = {}
        self._classes: dict[str, set[str]] = {}  # by split, with those that have no images
        tree = _walk(path)
        others = [
            f"{folder}/{name}".removeprefix("/") for folder, *_, names in tree for name in names
        ]
        photos = [name for name in others if name.lower().endswith(_PHOTOS)]
        self.unread = dict.fromkeys(photos, "not read here, save them as JPEG")
        self.unread |= dict.fromkeys((x for x in others if x not in self.unread), "no image")
        with_images = [parts for _, parts, images, _ in tree if images]
        if not with_images:
            said = self.unread and f"; {describe_skipped(self.unread)}"
            raise InputError(f"{path} holds no images ({', '.join(_SUFFIXES)}){said or ''}")
        has_splits = _has_splits(path, with_images)
        told = {split_in_name(Path(name).stem) for _, _, images, _ in tree for name in images}
        if not has_splits and "" not in told and len(told) > 1:
            raise InputError(
                f"{path} has splits in the names of its files ({', '.join(sorted(told))}): move "
                "them into folders, SPLIT/CLASS/..."
            )
        for folder, parts, images, _ in tree:
            split = "train"
            if has_splits:
                split, parts = SPLITS.get("".join(parts[:1]).lower(), ""), parts[1:]
            label = parts[0] if parts else ""
            self._classes.setdefault(split, set()).add(label)
            if split and images:
                found = self.splits.setdefault(split, [])
                found.extend((f"{folder}/{name}" if folder else name, label) for name in images)

    def count_once(self, content: Callable[[Path], Hashable] | None = None) -> None:
        """Leave out copies, as `group_copies` finds them: an image to test on is not trained on."""
        of = {
            self.path / file: split for split, images in self.splits.items() for file, _ in images
        }
        dropped = set()
        for first, *copies in group_copies(
            sorted(of, key=lambda file: of[file] == "train"), content
        ):
            for name in (file.relative_to(self.path).as_posix() for file in copies):
                self.unread[f"{name} of {first.relative_to(self.path)}"] = "copies"
                dropped.add(name)
        for split, images in self.splits.items():
            self.splits[split] = [(file, label) for file, label in images if file not in dropped]

    def source(self, split: str) -> FileSource:
        """Return the images of a split. A class has the same number in every split."""
        if split not in self.splits:
            raise InputError(
                f"{self.path} has no images of split {split!r}, only of: "
                f"{', '.join(sorted(self.splits))}"
            )
        images = self.splits[split]
        annotations = self.path / "val" / "val_annotations.txt"
        if split == "validation" and annotations.is_file():
            images = _annotated(images, annotations)
        found = {label for _, label in images}
        if "" in found:
            file = next(file for file, label in images if not label)
            raise InputError(f"{self.path}: {file} is in no class folder")
        # An empty folder would shift the numbers of the classes after it.
        if split == "train" and (empty := sorted(self._classes[split] - found - {""})):
            raise InputError(f"{self.path}: class folder {empty[0]} holds no images of its own")
        classes = sorted({label for _, label in self.splits.get("train", images)})
        if unexpected := sorted(found - set(classes)):
            raise InputError(f"{self.path}: {split} has class {unexpected[0]}, which train lacks")
        numbers = {label: number for number, label in enumerate(classes)}
        labels = np.array([numbers[label] for _, label in images], np.int32)
        return FileSource(self.path, tuple(file for file, _ in images), labels, tuple(classes))


_Folder: TypeAlias = tuple[str, tuple[str, ...], list[str], list[str]]
"""Path, composed parts of the path, names of the images, and of other visible files."""


def _walk(root: Path) -> list[_Folder]:
    """The folders below one, itself among them, in order."""
    found = []
    for folder, visible in walk(root):
        path = folder.relative_to(root)
        images = sorted((file for file in visible if _is_image(file)), key=composed)
        others = [file for file in visible if not _is_image(file)]
        found.append(("/".join(path.parts), tuple(map(composed, path.parts)), images, others))
    return sorted(found, key=lambda folder: (folder[1], folder[0]))


def _is_image(file: str) -> bool:
    return file.lower().endswith(_SUFFIXES)


def composed(name: str) -> str:
    """Return a name for comparing: macOS writes "é" as two characters, other systems as one."""
    return unicodedata.normalize("NFC", name)


def _has_splits(path: Path, folders: list[tuple[str, ...]]) -> bool:
    """Whether the folders with images are below those of splits."""
    tops = {parts[0] for parts in folders if parts}
    splits = {top for top in tops if top.lower() in SPLITS}
    if splits and (others := sorted(tops - splits)):
        raise InputError(
            f"{path} has images in {', '.join(others[:5])}, beside the folders of splits "
            f"({', '.join(sorted(splits))}): move them into a split, or elsewhere"
        )
    for parts in folders:
        if not splits and any(part.lower() in SPLITS for part in parts):
            raise InputError(
                f"{path} has a split in another folder, {'/'.join(parts)}; pass the folder that "
                "the splits are in, as SPLIT/CLASS/..."
            )
    return bool(splits)


def _annotated(images: list[tuple[str, str]], annotations: Path) -> list[tuple[str, str]]:
    """The images with the classes that lines of FILE<tab>CLASS name."""
    classes = {}
    for line in "".join(read_parts(annotations)).splitlines():
        file, _, rest = line.partition("\t")
        classes[composed(file)] = rest.partition("\t")[0]
    found = [(file, classes.get(composed(file.rpartition("/")[2]), "")) for file, _ in images]
    if missing := [file for file, label in found if not label]:
        raise InputError(f"{annotations} doesn't name the class of {missing[0]}")
    return found
