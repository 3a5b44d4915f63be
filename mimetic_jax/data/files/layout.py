"""Finds the images of a split and their classes in a folder."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from pathlib import Path

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.files.folder import Folder, composed
from mimetic_jax.data.home import SPLITS, is_hidden, left_out, split_in_name

_JPEG = (".jpeg", ".jpg", ".jpe", ".jfif")
_SUFFIXES = (*_JPEG, ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


def find_split(tree: Folder, split: str) -> tuple[list[int], list[str], list[str]]:
    """Find the images of a split and the class of each.

    Three layouts are known, at the top of the tree or in a folder of it: `SPLIT/CLASS/...`, as
    ImageFolder expects it; Tiny ImageNet's, where `val/val_annotations.txt` names the class of each
    file in `val/images`; and `CLASS/...` without splits, used as "train". Folders below a class
    belong to it. Files and folders whose names start with a dot are left out.

    A split's folder is named train or training; val, valid, validation or dev, which mean the same;
    test or testing, in capitals or not.

    Returns:
        Index in the tree and class of each image, and the sorted names of all classes: those
        of the training split if there is one, so that a class has the same number in every split.

    Raises:
        InputError: the split doesn't exist, a class has no images, training lacks a class, or
            images are beside the splits' folders, in others.
    """
    wanted = SPLITS.get(split, split)
    layout, by_split = _by_split(tree)
    if wanted not in by_split:
        known = ", ".join(sorted(set(by_split) - {""}))
        raise InputError(f"{tree.path} has no images of split {split!r}, only of: {known}")
    chosen = by_split[wanted]
    annotations = _annotations(tree, wanted)
    if annotations is not None:
        chosen = [(index, _annotated(tree, index, annotations)) for index, _ in chosen]
    else:
        _check_folders(tree, layout, wanted, {label for _, label in chosen})
    labels = [label for _, label in chosen]
    classes = sorted({label for _, label in by_split.get("train", chosen)})
    unexpected = sorted(set(labels) - set(classes))
    if "" in labels:
        name = tree.files[chosen[labels.index("")][0]]
        raise InputError(f"{tree.path}: {name} is in no class folder")
    if unexpected:
        raise InputError(f"{tree.path}: {split} has class {unexpected[0]}, which train lacks")
    return [index for index, _ in chosen], labels, classes


def other_files(tree: Folder) -> str:
    """How many files beside the images there are, hidden ones excepted; "" if there are none."""
    return left_out(n for n in tree.files if not _is_image(n) and not is_hidden(n))


def splits_of(tree: Folder) -> set[str]:
    """The splits that have images: "train", "validation", "test"; only "train" without splits.

    Raises:
        InputError: there are no images, or some are beside the splits' folders, in others.
    """
    return set(_by_split(tree)[1]) - {""}


_Parts = tuple[str, ...]  # of a folder's path


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where splits and classes are: below `root`."""

    root: _Parts
    has_splits: bool

    def place(self, folder: _Parts) -> tuple[str, str]:
        """The split and class of the files in a folder, "" where its path names none."""
        below = _below(self.root, folder)
        if not self.has_splits:
            return "train", below[0] if below else ""
        split, label = (*below, "", "")[:2]
        return SPLITS.get(split.lower(), ""), label


def _layout(path: Path, folders: Iterable[_Parts]) -> _Layout:
    """The layout of the folders that hold images."""
    named = [folder for folder in folders if folder]
    shared = _shared(named)[: min(map(len, named), default=1) - 1]
    root = tuple(itertools.takewhile(lambda part: part.lower() not in SPLITS, shared))
    tops = {_below(root, folder)[0] for folder in named}
    splits = {top for top in tops if top.lower() in SPLITS}
    if splits and (others := sorted(tops - splits)):
        raise InputError(
            f"{path} has images in {', '.join(others[:5])}, beside the folders of splits "
            f"({', '.join(sorted(splits))}): move them into a split, or elsewhere"
        )
    for folder in named:
        if not splits and any(part.lower() in SPLITS for part in folder):
            raise InputError(
                f"{path} has a split in another folder, {'/'.join(folder)}: the classes are in the "
                "splits, SPLIT/CLASS/..."
            )
    return _Layout(root, bool(splits))


def _shared(folders: list[_Parts]) -> _Parts:
    """What the paths have in common, from the top."""
    same = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))
    return tuple(first for first, *_ in same)


def _below(root: _Parts, folder: _Parts) -> _Parts:
    """What a path has after the part that it shares with the root's."""
    return folder[len(_shared([root, folder])) :]


def _by_split(tree: Folder) -> tuple[_Layout, dict[str, list[tuple[int, str]]]]:
    """Index and class of each image, by its split, "" where its path names none."""
    images = {
        index: name.rpartition("/")[0]
        for index, name in enumerate(tree.files)
        if _is_image(name) and not is_hidden(name)
    }
    if not images:
        raise InputError(f"{tree.path} holds no images ({', '.join(_SUFFIXES)})")
    folders = {folder: _parts(folder) for folder in sorted(set(images.values()))}
    layout = _layout(tree.path, folders.values())
    told = {split_in_name(tree.files[index]) for index in images}
    if not layout.has_splits and "" not in told and len(told) > 1:
        raise InputError(
            f"{tree.path} has splits in the names of its files ({', '.join(sorted(told))}): move "
            "them into folders, SPLIT/CLASS/..."
        )
    places = {folder: layout.place(parts) for folder, parts in folders.items()}
    found: dict[str, list[tuple[int, str]]] = {}
    for index, folder in images.items():
        split, label = places[folder]
        found.setdefault(split, []).append((index, label))
    return layout, found


def _is_image(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES)


def _parts(name: str) -> _Parts:
    return tuple(composed(part) for part in name.split("/") if part not in ("", ".", ".."))


def _annotations(tree: Folder, split: str) -> dict[str, str] | None:
    """Class by file name of Tiny ImageNet's validation images; None for another layout."""
    for index, name in enumerate(tree.files):
        if split == "validation" and f"/{name}".endswith("/val/val_annotations.txt"):
            try:
                text = tree.read(index).decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise InputError(f"{tree.path}/{name} isn't UTF-8: byte {error.start}") from error
            fields = [line.split("\t") for line in text.splitlines() if line.strip()]
            if any(len(line) < 2 for line in fields):
                raise InputError(f"{tree.path}/{name} has lines without FILE<tab>CLASS")
            return {composed(line[0]): line[1] for line in fields}
    return None


def _annotated(tree: Folder, index: int, annotations: dict[str, str]) -> str:
    name = composed(tree.files[index].rpartition("/")[2])
    if name not in annotations:
        raise InputError(f"{tree.path}: val_annotations.txt doesn't name {name}")
    return annotations[name]


def _check_folders(tree: Folder, layout: _Layout, split: str, labels: set[str]) -> None:
    """Raise for an empty class folder: without it, the numbers of later classes would shift."""
    for folder in tree.folders:
        found, label = layout.place(_parts(folder))
        if found == split and label and label not in labels and not is_hidden(folder):
            raise InputError(f"{tree.path}: class folder {folder} holds no images")
