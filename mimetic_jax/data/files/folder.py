"""The files of a folder tree."""

from __future__ import annotations

import os
from pathlib import Path


class Folder:
    """The files below a folder by index, in order of their names.

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
        for directory, folders, files in os.walk(path, followlinks=True):
            folders.sort()  # os.walk visits them in this order.
            here = Path(directory).relative_to(path).as_posix()
            prefix = "" if here == "." else here + "/"
            self.folders += [prefix + name for name in folders]
            self.files += [prefix + name for name in sorted(files)]

    def read(self, index: int) -> bytes:
        """The content of file `index`."""
        return (self.path / self.files[index]).read_bytes()
