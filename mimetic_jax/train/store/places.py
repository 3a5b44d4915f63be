"""Places: everything that is read or written below a workdir passes here.

A workdir may be shared, so what is in it can't be trusted to be what it seems. Below the workdir
itself no symbolic link is followed, and only regular files are opened: a planted link can't lead a
write elsewhere, nor a pipe keep a reader waiting.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import socket
import stat
from collections.abc import Iterator

from etils import epath

from mimetic_jax.data.home import AnyPath, expanded, reached
from mimetic_jax.errors import InputError, check_given
from mimetic_jax.host import files
from mimetic_jax.typed import shown


@dataclasses.dataclass(frozen=True)
class Place:
    """A path in a workdir, which is a local folder or `gs://BUCKET/…`.

    >>> str(Place.of("runs/digits") / "runs" / "default" / "0")
    'runs/digits/runs/default/0'

    Attributes:
        root: the workdir, which may be a link itself.
        parts: names below it.
    """

    root: AnyPath
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: str | os.PathLike[str] | Place) -> Place:
        """The place of a workdir; "~" is the home folder.

        Raises:
            InputError: an empty path, or an address that is not a bucket's.
        """
        if isinstance(path, Place):
            return path
        if isinstance(path, os.PathLike):
            return cls(pathlib.Path(path))
        if not isinstance(path, str):
            raise InputError(f"workdir {shown(path)} is not a path")
        check_given("workdir", path)
        return cls(_bucket(path) if "://" in path else expanded(path))

    def __truediv__(self, name: str) -> Place:
        return Place(self.root, (*self.parts, *name.split("/")))

    def __str__(self) -> str:
        return str(self.root.joinpath(*self.parts))

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else self.root.name

    @property
    def parent(self) -> Place:
        return Place(self.root, self.parts[:-1]) if self.parts else Place(self.root.parent)

    @property
    def in_bucket(self) -> bool:
        """Whether it is an object, which is written whole and can't be locked."""
        return "://" in str(self.root)

    @property
    def path(self) -> AnyPath:
        """The path, for a library that writes there itself.

        Raises:
            InputError: a part of it below the workdir is a symbolic link, or it is in a bucket
                that can't be reached; the error has the reason.
        """
        path = self.root
        if isinstance(path, epath.Path) and self.in_bucket:
            reached(str(path), "workdir")
        for part in self.parts:
            path = path / part
            if not self.in_bucket and os.path.islink(path):
                raise InputError(f"{path} is a symbolic link, which isn't followed in a workdir")
        return path

    def exists(self) -> bool:
        return self.path.exists()

    def is_folder(self) -> bool:
        return self.path.is_dir()

    def names(self) -> list[str]:
        """The names in the folder, sorted; none if it is missing."""
        return sorted(path.name for path in self.path.iterdir()) if self.is_folder() else []

    def make(self) -> None:
        """Make the folder, with those above it."""
        self.path.mkdir(parents=True, exist_ok=True)

    def read(self) -> bytes:
        """The content of the file.

        Raises:
            InputError: it is a link, or no file that can be read.
        """
        path = self.path
        try:
            return path.read_bytes() if self.in_bucket else files.read_bytes(path)
        except OSError as error:
            raise InputError(f"{self} can't be read: {error.strerror or error}") from error

    def write(self, content: str | bytes) -> None:
        """Write the file so that a reader, even after a kill, sees the old content or the new."""
        content = content.encode() if isinstance(content, str) else content
        path = self.path
        if self.in_bucket:  # objects are like that
            path.write_bytes(content)
            return
        # A name of its own: jobs that share a workdir write its summary at the same time.
        draft = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.new")
        try:
            with files.open_to_write(draft) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if os.path.islink(path):  # since the check above, or the root itself
                raise InputError(f"{path} is a symbolic link, which isn't followed in a workdir")
            if path.exists() and not path.is_file():
                raise InputError(f"{path} is {files.NOT_REGULAR}")
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def append(self, text: str) -> None:
        """Append all of the text to the file or, where the disk is full, nothing."""
        path = self.path
        if self.in_bucket:  # objects can't be added to
            path.write_text((path.read_text() if path.exists() else "") + text)
            return
        with files.open_to_write(path, "ab", buffering=0) as file:
            end, left = file.seek(0, os.SEEK_END), text.encode()
            try:
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(end)
                raise

    def sync(self) -> None:
        """Return once the file is on disk: a power cut doesn't take it back."""
        if not self.in_bucket and self.exists():
            with files.open_to_read(self.path) as file:
                os.fsync(file.fileno())

    def remove(self) -> None:
        """Delete the folder with all in it; of a link in it only the link."""
        if self.in_bucket:
            epath.Path(self.path).rmtree()
        else:
            shutil.rmtree(self.path)

    def check_inside(self) -> None:
        """Check that all in the folder are files and folders, before a library reads them.

        Raises:
            InputError: names a link, a pipe or a device among them.
        """
        for entry in _walk(self.path) if not self.in_bucket else ():
            mode = entry.stat(follow_symlinks=False).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise InputError(f"{entry.path} is neither a regular file nor a folder")


def damaged(place: Place, reason: str) -> InputError:
    """The error for a file of a workdir that can't be read."""
    return InputError(f"{place} is damaged ({reason}): restore it, or move it away")


def _walk(folder: AnyPath) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(pathlib.Path(entry.path))


def _bucket(text: str) -> epath.Path:
    scheme, _, rest = text.partition("://")
    if scheme != "gs" or not rest.strip("/"):
        raise InputError(f"workdir {text} is neither a local folder nor gs://BUCKET/FOLDER")
    return epath.Path(text)
