"""Reads files directly from tar and zip archives: indexed once, never unpacked."""

from __future__ import annotations

import os
import posixpath
import struct
import tarfile
import threading
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np

from mimetic_jax.data.files.decode import LIMITS, DecodeError, Limits
from mimetic_jax.errors import InputError, said_by
from mimetic_jax.host.files import open_to_read

_MOST_NESTED = 3  # tars in tars; ImageNet's are one deep
_MOST_LINKS = 40  # from one to the next, as in Linux
_LONGEST_HEADER = 2**16  # bytes; before Python 3.11.10 it takes up to 20 seconds to search so many


class Archive:
    """The files of a tar or zip by index, for any number of threads and processes.

    A tar of tars (ImageNet's training images) lists the files of the inner tars, in folders named
    as the inner tars without ".tar". A link in a tar has the content of the file that it leads to.
    Of several files with one path, the last counts, as it does for tar. Opening reads only the
    headers.

    Args:
        path: an uncompressed tar, or a zip whose files are stored or deflated.
        limits: of the size of a file.

    Attributes:
        path: as given.
        files: paths of the regular files and of links, without "." and "..", in the archive's
            order.
        folders: paths of the folders that have entries of their own.

    Raises:
        InputError: the archive is missing, or is damaged or truncated at the byte given, or has a
            file that isn't stored whole.
    """

    def __init__(self, path: Path, limits: Limits = LIMITS) -> None:
        self.path, self._limits = path, limits
        self._is_zip = path.suffix.lower() == ".zip"
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        try:
            with open_to_read(path) as file:
                size = os.fstat(file.fileno()).st_size
                entries = _zip_entries(file, path) if self._is_zip else _tar_entries(file, path)
        except OSError as error:
            raise InputError(f"can't read {path} ({error.strerror})") from error
        for name, entry in entries.items():
            end = entry.offset + entry.stored
            if not 0 <= entry.offset <= end <= size or entry.unpacked >= 2**63:
                raise InputError(f"{path}:{name} is not within its {size} bytes: damaged")
        self.folders = [name for name, entry in entries.items() if entry.is_folder]
        self.files = [name for name, entry in entries.items() if not entry.is_folder]
        where = [entry[:4] for entry in entries.values() if not entry.is_folder]
        self._where = np.array(where, np.int64).reshape(-1, 4)

    def read(self, index: int) -> bytes:
        """The content of file `index`.

        Raises:
            DecodeError: it is a link to no file of the archive, or is too large or damaged.
            InputError: the archive was truncated or changed after it was opened.
        """
        offset, stored, unpacked, checksum = map(int, self._where[index])
        name = f"{self.path}:{self.files[index]}"
        if unpacked == _DEAD:
            raise DecodeError(f"{name} can't be decoded (it is a link to no file of the archive)")
        self._limits.check_bytes(max(stored, unpacked), name)
        if self._is_zip:  # The file's own header may be longer than its directory entry.
            header = os.pread(self._open(), 30, offset)
            if header[:4] != b"PK\3\4" or len(header) < 30:
                raise InputError(
                    f"{self.path} has no file header at byte {offset}: damaged or changed"
                )
            offset += 30 + sum(struct.unpack("<HH", header[26:30]))
        content = os.pread(self._open(), stored, offset)
        if len(content) < stored:
            raise InputError(
                f"{self.path} is truncated at byte {os.fstat(self._open()).st_size}: "
                f"{self.files[index]} should end at byte {offset + stored}"
            )
        if unpacked != _STORED:
            content = _inflated(content, unpacked, name)
        if self._is_zip and zlib.crc32(content) != checksum:
            raise DecodeError(f"{name} is damaged: its CRC-32 isn't the {checksum:08x} of the zip")
        return content

    def _open(self) -> int:
        with self._lock:
            if self._file is None:
                self._file = open_to_read(self.path)
                weakref.finalize(self, self._file.close)
            return self._file.fileno()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_file": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


_STORED = -1  # as it is read
_DEAD = -2  # a link to no file


class _Entry(NamedTuple):
    """Where a file is in the archive.

    Attributes:
        offset, stored: bytes before it and in it.
        unpacked: bytes that it unpacks to, or `_STORED` or `_DEAD`.
        checksum: CRC-32 of these, in a zip.
        is_folder: whether it is a folder instead.
        target: path that a symbolic link leads to.
    """

    offset: int
    stored: int
    unpacked: int = _STORED
    checksum: int = 0
    is_folder: bool = False
    target: str = ""

    @property
    def is_file(self) -> bool:
        """Whether it is a file or a hard link to one."""
        return not (self.is_folder or self.target or self.unpacked == _DEAD)


_NO_FILE = _Entry(0, 0, _DEAD)


def _path(name: str) -> str:
    """A path in an archive as tar and unzip mean it: relative, without "." and ".."."""
    return posixpath.normpath(f"/{name}").lstrip("/")


def _zip_entries(file: IO[bytes], path: Path) -> dict[str, _Entry]:
    try:
        with zipfile.ZipFile(file) as opened:
            infos = opened.infolist()
    except OSError:
        raise
    except Exception as error:  # zipfile has its own, and those of struct, of text and of integers
        raise InputError(
            f"{path} can't be read as a zip ({said_by(error)}): truncated or damaged"
        ) from error
    entries = {}
    for info in infos:
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        if info.flag_bits & 1 or not (deflated or info.compress_type == zipfile.ZIP_STORED):
            raise InputError(
                f"{path}:{info.filename} is encrypted, or neither stored nor deflated: unpack it"
            )
        unpacked = info.file_size if deflated else _STORED
        where = info.header_offset, info.compress_size, unpacked, info.CRC
        entries[_path(info.filename)] = _Entry(*where, is_folder=info.is_dir())
    entries.pop("", None)  # the folder "./"
    return entries


def _inflated(content: bytes, size: int, name: str) -> bytes:
    try:
        # One more byte than expected shows that there are more.
        unpacked = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, size + 1)
    except zlib.error as error:
        raise DecodeError(f"{name} is damaged ({error})") from error
    if len(unpacked) != size:
        found = f"it unpacks to {'more' if len(unpacked) > size else 'fewer'} than {size} bytes"
        raise DecodeError(f"{name} is damaged: {found}")
    return unpacked


def _tar_entries(file: IO[bytes], path: Path) -> dict[str, _Entry]:
    entries = _members(file, path, 0, os.fstat(file.fileno()).st_size)
    return {name: _followed(entry, entries) for name, entry in entries.items()}


def _followed(entry: _Entry, entries: dict[str, _Entry]) -> _Entry:
    """The file that a chain of symbolic links leads to."""
    for _ in range(_MOST_LINKS):
        if not entry.target:
            break
        entry = entries.get(entry.target, _NO_FILE)
        if entry.is_folder:
            return _NO_FILE
    return _NO_FILE if entry.target else entry


def _members(
    file: IO[bytes], path: Path, start: int, end: int, prefix: str = "", depth: int = 0
) -> dict[str, _Entry]:
    """The members of the tar in bytes [start, end) by path, those of inner tars in folders."""
    if depth > _MOST_NESTED:
        raise InputError(f"{path} holds tars in tars, more than {_MOST_NESTED} deep: {prefix}")
    members: dict[str, _Entry] = {}
    for header in _headers(file, path, start, end, prefix):
        name, entry = _path(header.name), _Entry(header.offset_data, header.size)
        if header.isdir():
            members[name] = entry._replace(is_folder=True)
        elif header.isreg():
            members[name] = entry
        elif header.islnk():  # to itself where tar was given a file twice
            linked = members.get(posixpath.normpath(header.linkname).lstrip("/"), _NO_FILE)
            members[name] = _NO_FILE if linked.is_folder else linked
        elif header.issym():
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), header.linkname))
            members[name] = entry._replace(target=prefix + target)
    found: dict[str, _Entry] = {}
    for name, entry in members.items():
        if name.endswith(".tar") and entry.is_file:
            inner = prefix + name.removesuffix(".tar")
            found[inner] = entry._replace(is_folder=True)
            part = entry.offset, entry.offset + entry.stored
            found |= _members(file, path, *part, f"{inner}/", depth + 1)
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
    file: IO[bytes], path: Path, start: int, end: int, prefix: str
) -> Iterator[tarfile.TarInfo]:
    """The headers of the tar in bytes [start, end), all the way to the empty block at its end."""
    file.seek(start)
    at, cause = start, None
    try:
        opened = cast(IO[bytes], _Headers(file))
        tar: Any = tarfile.TarFile(fileobj=opened, encoding="utf-8", errors="surrogateescape")
        while header := tar.next():
            if header.issparse():
                raise InputError(
                    f"{path}:{prefix}{header.name} is stored without its holes: pack it without "
                    "--sparse"
                )
            if not 0 <= header.size <= end - header.offset_data:
                raise InputError(
                    f"{path} is truncated at byte {end}: {header.name[:200]} should end at byte "
                    f"{header.offset_data + header.size}"
                )
            at = tar.offset
            tar.members.clear()  # a million of them take gigabytes
            yield header
    except InputError:
        raise
    except Exception as error:  # besides its own, those of integers, of text and of memory
        cause = error
    # Also at a damaged header, tarfile ends as at the last.
    block = os.pread(file.fileno(), tarfile.BLOCKSIZE, at)
    if len(block) < tarfile.BLOCKSIZE or at + len(block) > end:
        raise InputError(f"{path} is truncated at byte {end}: a tar ends in empty blocks")
    if cause or any(block):
        raise InputError(
            f"{path} isn't an uncompressed tar, or is damaged: no file header at byte {at}"
        ) from cause
