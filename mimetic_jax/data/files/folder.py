"""The files of a folder tree."""

from __future__ import annotations

import os
from pathlib import Path

from mimetic_jax.data.files.decode import LIMITS, DecodeError, Limits
from mimetic_jax.errors import InputError
from mimetic_jax.host.files import open_to_read


class Folder:
    """The files below a folder by index, in order of their names.

    Symbolic links are followed, but no folder is listed twice: one that has a path without links
    is listed there alone, another by the first of the paths with the fewest links. A link to a
    folder that it is in, or that `path` is in, is left out.

    Args:
        path: the folder.
        limits: of the size of a file.

    Attributes:
        path: as given.
        files: names of the files relative to it, with forward slashes, sorted folder by folder.
        folders: names of the folders below it.
    """

    in_flight = 1

    def __init__(self, path: Path, limits: Limits = LIMITS) -> None:
        self.path, self._limits = path, limits
        self.files: list[str] = []
        self.folders: list[str] = []
        found = _folders(path)
        for parts, (folders, files) in sorted(found.items()):
            prefix = "".join(f"{part}/" for part in parts)
            self.folders += [prefix + name for name in folders if (*parts, name) in found]
            self.files += [prefix + name for name in files]

    def read(self, index: int) -> bytes:
        """The content of file `index`.

        Raises:
            DecodeError: it is a link to nothing, no regular file, such as a pipe, or too large.
            InputError: it may not be read.
        """
        path = self.path / self.files[index]
        try:
            with open_to_read(path) as file:
                self._limits.check_bytes(os.fstat(file.fileno()).st_size, str(path))
                return file.read()
        except OSError as error:
            if path.is_file():
                raise InputError(f"can't read {path} ({error.strerror})") from error
            raise DecodeError(
                f"{path} can't be decoded (it is no file, or a link to none)"
            ) from error


_Parts = tuple[str, ...]  # of a folder's path relative to the root


def _folders(root: Path) -> dict[_Parts, tuple[list[str], list[str]]]:
    """Sorted names of the folders and files in each folder of a tree."""
    found: dict[_Parts, tuple[list[str], list[str]]] = {}
    seen = {_identity(parent) for parent in root.resolve().parents}
    starts = [root]
    while starts:
        links: list[Path] = []
        for start in starts:
            for name, folders, files in os.walk(start):  # follows no link but `start` itself
                here = Path(name)
                if (identity := _identity(here)) in seen:
                    folders.clear()
                    continue
                seen.add(identity)
                folders.sort()
                found[here.relative_to(root).parts] = list(folders), sorted(files)
                links += [here / folder for folder in folders if _leads_elsewhere(here / folder)]
        starts = sorted(links)
    return found


def _leads_elsewhere(folder: Path) -> bool:
    """Whether this is a symbolic link, and not to a folder that it is in."""
    if not folder.is_symlink():
        return False
    holder, target = folder.parent.resolve(), folder.resolve()
    return target not in (holder, *holder.parents)


def _identity(folder: Path) -> tuple[int, int]:
    """The same for all paths of a folder."""
    status = folder.stat()
    return status.st_dev, status.st_ino
