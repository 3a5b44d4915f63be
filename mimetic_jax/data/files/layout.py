"""Finds the images of a split and their classes in a folder or archive."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from mimetic_jax.errors import InputError

_SPLITS = {"train": "train", "val": "validation", "validation": "validation", "test": "test"}
_SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


class Container(Protocol):
    """Files by index: `Folder` or `Archive`."""

    path: Path
    files: list[str]
    folders: list[str]

    def read(self, index: int) -> bytes:
        """The content of file `index`."""
        ...


def find_split(container: Container, split: str) -> tuple[list[int], list[str], list[str]]:
    """Find the images of a split and the class of each.

    Three layouts are known, at the top of the container or in a folder of it: `SPLIT/CLASS/...`, as
    ImageFolder expects it; Tiny ImageNet's, where `val/val_annotations.txt` names the class of each
    file in `val/images`; and `CLASS/...` without splits, used as "train". "val" and "validation"
    mean the same.

    Returns:
        Index in the container and class of each image, and the sorted names of all classes: those
        of the training split if there is one, so that a class has the same number in every split.

    Raises:
        InputError: the split doesn't exist, a class has no images, or training lacks a class.
    """
    wanted = _SPLITS.get(split, split)
    by_split = _by_split(container)
    without_splits = set(by_split) == {""}
    if without_splits:
        by_split = {"train": by_split[""]}
    if wanted not in by_split:
        known = ", ".join(sorted(set(by_split) - {""}))
        raise InputError(f"{container.path} has no images of split {split!r}, only of: {known}")
    chosen = by_split[wanted]
    annotations = _annotations(container, wanted)
    if annotations is not None:
        chosen = [(index, _annotated(container, index, annotations)) for index, _ in chosen]
    else:
        _check_folders(container, "" if without_splits else wanted, chosen)
    labels = [label for _, label in chosen]
    classes = sorted({label for _, label in by_split.get("train", chosen)})
    unexpected = sorted(set(labels) - set(classes))
    if "" in labels:
        name = container.files[chosen[labels.index("")][0]]
        raise InputError(f"{container.path}: {name} is in no class folder")
    if unexpected:
        raise InputError(f"{container.path}: {split} has class {unexpected[0]}, which train lacks")
    return [index for index, _ in chosen], labels, classes


def splits_of(container: Container) -> set[str]:
    """The splits that have images: "train", "validation", "test"; only "train" without splits.

    Raises:
        InputError: there are no images.
    """
    found = set(_by_split(container))
    return {"train"} if found == {""} else found - {""}


def _by_split(container: Container) -> dict[str, list[tuple[int, str]]]:
    """Index and class of each image, by its split, "" where its path names none."""
    found: dict[str, list[tuple[int, str]]] = {}
    for index, name in enumerate(container.files):
        if name.lower().endswith(_SUFFIXES) and not _hidden(name):
            split, label = _split_and_class(name)
            found.setdefault(split, []).append((index, label))
    if not found:
        raise InputError(f"{container.path} holds no images ({', '.join(_SUFFIXES)})")
    return found


def _hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".") or name.startswith("__MACOSX/")


def _split_and_class(name: str) -> tuple[str, str]:
    """The split of a file, "" if its path names none, and its class."""
    folders = [part for part in name.split("/")[:-1] if part not in ("", ".")]
    for depth, folder in enumerate(folders):
        if folder in _SPLITS:
            return _SPLITS[folder], folders[depth + 1] if folders[depth + 1 :] else ""
    if folders[-1:] == ["images"]:
        folders.pop()
    return "", folders[-1] if folders else ""


def _annotations(container: Container, split: str) -> dict[str, str] | None:
    """Class by file name of Tiny ImageNet's validation images; None for another layout."""
    for index, name in enumerate(container.files):
        if split == "validation" and f"/{name}".endswith("/val/val_annotations.txt"):
            lines = container.read(index).decode().splitlines()
            fields = [line.split("\t") for line in lines if line.strip()]
            if any(len(line) < 2 for line in fields):
                raise InputError(f"{container.path}:{name} has lines without FILE<tab>CLASS")
            return {line[0]: line[1] for line in fields}
    return None


def _annotated(container: Container, index: int, annotations: dict[str, str]) -> str:
    name = container.files[index].rpartition("/")[2]
    if name not in annotations:
        raise InputError(f"{container.path}: val_annotations.txt doesn't name {name}")
    return annotations[name]


def _check_folders(container: Container, split: str, images: list[tuple[int, str]]) -> None:
    """Raise for an empty class folder: without it, the numbers of later classes would shift."""
    labels, used = {label for _, label in images}, {""}
    for index, _ in images:
        folder = container.files[index].rpartition("/")[0]
        while folder not in used:
            used.add(folder)
            folder = folder.rpartition("/")[0]
    for folder in container.folders:
        found, label = _split_and_class(f"{folder}/")
        is_class = found == split and label and not _hidden(folder)
        if is_class and label not in labels and folder not in used:
            raise InputError(f"{container.path}: class folder {folder} holds no images")
