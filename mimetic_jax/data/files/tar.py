"""The files in a tar and in the tars in it, from their headers."""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, NamedTuple, cast

from mimetic_jax.data.files.ranged import RangedFile
from mimetic_jax.data.home import AnyPath
from mimetic_jax.errors import InputError

_MOST_NESTED = 3  # tars in tars; ImageNet's are one deep
_MOST_LINKS = 40  # from one to the next, as in Linux
_LONGEST_HEADER = 2**16  # bytes; before Python 3.11.10 it takes up to 20 seconds to search so many
_TARS_AT_ONCE = 16

STORED = -1  # as it is read
DEAD = -2  # a link to no file


class Entry(NamedTuple):
    """Where a file is in the archive.

    Attributes:
        offset, stored: bytes before it and in it.
        unpacked: bytes that it unpacks to, or `STORED` or `DEAD`.
        checksum: CRC-32 of these, in a zip.
        is_folder: whether it is a folder instead.
        target: path that a symbolic link leads to.
    """

    offset: int
    stored: int
    unpacked: int = STORED
    checksum: int = 0
    is_folder: bool = False
    target: str = ""

    @property
    def is_file(self) -> bool:
        """Whether it is a file or a hard link to one."""
        return not (self.is_folder or self.target or self.unpacked == DEAD)


NO_FILE = Entry(0, 0, DEAD)


def path_in(name: str) -> str:
    """A path in an archive as tar and unzip mean it: relative, without "." and ".."."""
    return posixpath.normpath(f"/{name}").lstrip("/")


def tar_entries(file: RangedFile, path: AnyPath) -> dict[str, Entry]:
    """What is in a tar, by path."""
    entries = _members(file, path, 0, file.size)
    return {name: _followed(entry, entries) for name, entry in entries.items()}


def _followed(entry: Entry, entries: dict[str, Entry]) -> Entry:
    """The file that a chain of symbolic links leads to."""
    for _ in range(_MOST_LINKS):
        if not entry.target:
            break
        entry = entries.get(entry.target, NO_FILE)
        if entry.is_folder:
            return NO_FILE
    return NO_FILE if entry.target else entry


def _members(
    file: RangedFile, path: AnyPath, start: int, end: int, prefix: str = "", depth: int = 0
) -> dict[str, Entry]:
    """The members of the tar in bytes [start, end) by path, those of inner tars in folders."""
    if depth > _MOST_NESTED:
        raise InputError(f"{path} holds tars in tars, more than {_MOST_NESTED} deep: {prefix}")
    members: dict[str, Entry] = {}
    for header in _headers(file, path, start, end, prefix):
        name, entry = path_in(header.name), Entry(header.offset_data, header.size)
        if header.isdir():
            members[name] = entry._replace(is_folder=True)
        elif header.isreg():
            members[name] = entry
        elif header.islnk():  # to itself where tar was given a file twice
            linked = members.get(posixpath.normpath(header.linkname).lstrip("/"), NO_FILE)
            members[name] = NO_FILE if linked.is_folder else linked
        elif header.issym():
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), header.linkname))
            members[name] = entry._replace(target=prefix + target)
    # Inner tars at once, as each of their headers waits for a bucket.
    with ThreadPoolExecutor(min(file.in_flight, _TARS_AT_ONCE)) as pool:
        inner = {
            name: pool.submit(
                _members,
                file,
                path,
                entry.offset,
                entry.offset + entry.stored,
                f"{prefix}{name.removesuffix('.tar')}/",
                depth + 1,
            )
            for name, entry in members.items()
            if name.endswith(".tar") and entry.is_file
        }
    found: dict[str, Entry] = {}
    for name, entry in members.items():
        if name in inner:
            found[prefix + name.removesuffix(".tar")] = entry._replace(is_folder=True)
            found |= inner[name].result()
        elif name:  # not the folder "./"
            found[prefix + name] = entry
    return found


class _Headers:
    """A file for `tarfile`, which believes a header that asks for a name of any size."""

    def __init__(self, file: IO[bytes]) -> None:
        self.tell, self.seek, self._read = file.tell, file.seek, file.read

    def read(self, size: int) -> bytes:
        if size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._read(size)


def _headers(
    file: RangedFile, path: AnyPath, start: int, end: int, prefix: str
) -> Iterator[tarfile.TarInfo]:
    """The headers of the tar in bytes [start, end), all the way to the empty block at its end."""
    at, cause = start, None
    try:
        with file.open() as stream:
            stream.seek(start)
            headers = cast(IO[bytes], _Headers(stream))
            tar: Any = tarfile.TarFile(fileobj=headers, encoding="utf-8", errors="surrogateescape")
            while header := tar.next():
                if header.issparse():
                    raise InputError(
                        f"{path}:{prefix}{header.name} is stored without its holes: pack it "
                        "without --sparse"
                    )
                if not 0 <= header.size <= end - header.offset_data:
                    raise InputError(
                        f"{path} is truncated at byte {end}: {header.name[:200]} should end at "
                        f"byte {header.offset_data + header.size}"
                    )
                at = tar.offset
                tar.members.clear()  # a million of them take gigabytes
                yield header
    except InputError:
        raise
    except Exception as error:  # besides its own, those of integers, of text and of memory
        cause = error
    # Also at a damaged header, tarfile ends as at the last.
    block = file.read(at, tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE or at + len(block) > end:
        raise InputError(f"{path} is truncated at byte {end}: a tar ends in empty blocks")
    if cause or any(block):
        raise InputError(
            f"{path} isn't an uncompressed tar, or is damaged: no file header at byte {at}"
        ) from cause
