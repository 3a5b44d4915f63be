"""The files of a folder tree."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from mimetic_jax.base.errors import InputError


class Folder:
    """The files below a folder by index, in order of their names.

    The order is the same whether names are stored composed or decomposed. Symbolic links are
    followed, as ImageFolder loaders do.

    Args:
        path: the folder.

    Attributes:
        path: as given.
        files: names of the files relative to it, with forward slashes, sorted folder by folder.
        folders: names of the folders below it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: list[str] = []
        self.folders: list[str] = []
        found = _folders(path.resolve())
        for parts in sorted(found, key=lambda parts: [*map(composed, parts)]):
            folders, files = found[parts]
            prefix = "".join(f"{part}/" for part in parts)
            self.folders += [prefix + name for name in folders]
            self.files += [prefix + name for name in files]

    def read(self, index: int) -> bytes:
        """The content of file `index`.

        Raises:
            InputError: it can't be read, such as a link to nothing.
        """
        path = self.path / self.files[index]
        try:
            return path.read_bytes()
        except OSError as error:
            raise InputError(f"can't read {path} ({error.strerror})") from error


def composed(name: str) -> str:
    """A name for comparing: macOS writes "é" as two characters, other systems as one."""
    return unicodedata.normalize("NFC", name)


_Parts = tuple[str, ...]  # of a folder's path relative to the root


def _folders(root: Path) -> dict[_Parts, tuple[list[str], list[str]]]:
    """Sorted names of the folders and files in each folder of a tree."""
    found: dict[_Parts, tuple[list[str], list[str]]] = {}
    for name, folders, files in os.walk(root, followlinks=True):
        here = Path(name)
        folders.sort(key=composed)
        found[here.relative_to(root).parts] = list(folders), sorted(files, key=composed)
    return found
