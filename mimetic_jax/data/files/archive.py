"""Reads files directly from tar and zip archives: indexed once, never unpacked."""

from __future__ import annotations

import os
import posixpath
import re
import struct
import threading
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from mimetic_jax.data.files.decode import LIMITS, DecodeError, Limits
from mimetic_jax.errors import InputError, blaming, said_by
from mimetic_jax.host.files import open_to_read

_BLOCK = 512
_MOST_NESTED = 3  # tars in tars; ImageNet's are one deep
_MOST_LINKS = 40  # from one to the next, as in Linux
_LONGEST_NAME = 2**20  # bytes of a header that holds one


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


# Not `tarfile`: it takes 2.4 times as long (30, not 12 µs per member), ends at a damaged header
# without an error, and before Python 3.11.10 searches 64 KiB of digits in a header for 20 seconds.
def _tar_entries(file: IO[bytes], path: Path) -> dict[str, _Entry]:
    entries = _members(file.fileno(), path, 0, os.fstat(file.fileno()).st_size)
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
    descriptor: int, path: Path, start: int, end: int, prefix: str = "", depth: int = 0
) -> dict[str, _Entry]:
    """The members of the tar in bytes [start, end) by path, those of inner tars in folders."""
    if depth > _MOST_NESTED:
        raise InputError(f"{path} holds tars in tars, more than {_MOST_NESTED} deep: {prefix}")
    members: dict[str, _Entry] = {}
    for name, kind, entry in _headers(descriptor, path, start, end):
        if kind == b"5":
            members[name] = entry._replace(is_folder=True)
        elif kind in (b"0", b"\0", b"7"):
            members[name] = entry
        elif kind == b"1":  # a hard link, to itself where tar was given a file twice
            linked = members.get(posixpath.normpath(entry.target).lstrip("/"), _NO_FILE)
            members[name] = _NO_FILE if linked.is_folder else linked
        elif kind == b"2":
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry.target))
            members[name] = entry._replace(target=prefix + target)
        elif kind == b"S":
            raise InputError(
                f"{path}:{prefix}{name} is stored without its holes: pack it without --sparse"
            )
    found: dict[str, _Entry] = {}
    for name, entry in members.items():
        if name.endswith(".tar") and entry.is_file:
            inner = prefix + name.removesuffix(".tar")
            found[inner] = entry._replace(is_folder=True)
            part = entry.offset, entry.offset + entry.stored
            found |= _members(descriptor, path, *part, f"{inner}/", depth + 1)
        elif name:  # not the folder "./"
            found[prefix + name] = entry
    return found


def _headers(
    descriptor: int, path: Path, start: int, end: int
) -> Iterator[tuple[str, bytes, _Entry]]:
    """Path and kind of each member of a tar, in order, with its place and the target of a link."""
    at, extended = start, dict[str, bytes]()
    while True:
        header = os.pread(descriptor, _BLOCK, at) if at + _BLOCK <= end else b""
        if len(header) < _BLOCK:
            raise InputError(f"{path} is truncated at byte {end}: a tar ends in empty blocks")
        if not any(header):
            return
        if not _has_valid_checksum(header):
            raise InputError(f"{path} isn't an uncompressed tar: no file header at byte {at}")
        content, kind = at + _BLOCK, header[156:157]
        damaged = f"{path} has a damaged file header at byte {at}"
        with blaming(damaged):
            size = _decimal(extended["size"]) if "size" in extended else _number(header[124:136])
        if content + size > end:
            name = _text(extended.get("path", _name(header)))
            raise InputError(
                f"{path} is truncated at byte {end}: {name} should end at byte {content + size}"
            )
        if kind in (b"L", b"K", b"x"):  # it is about the next member
            with blaming(damaged):
                extended |= _extension(kind, descriptor, content, size)
        at = content + -(-size // _BLOCK) * _BLOCK
        if kind not in (b"L", b"K", b"x", b"g"):  # b"g" is about all members
            path_of = extended.get("GNU.sparse.name", extended.get("path", _name(header)))
            target = extended.get("linkpath", header[157:257].split(b"\0")[0])
            is_sparse = any(key.startswith("GNU.sparse.") for key in extended)
            is_link = kind in (b"1", b"2")
            where = _Entry(content, size, target=_text(target) if is_link else "")
            yield _path(_text(path_of)), b"S" if is_sparse else kind, where
            extended = {}


def _extension(kind: bytes, descriptor: int, start: int, size: int) -> dict[str, bytes]:
    """What a header says of the next member: GNU's of its name or link, POSIX's of any field."""
    if size > _LONGEST_NAME:
        raise InputError(f"a name of {size:,} bytes")
    content = os.pread(descriptor, size, start)
    if kind == b"x":
        return _records(content)
    return {"path" if kind == b"L" else "linkpath": content.rstrip(b"\0")}


def _has_valid_checksum(header: bytes) -> bool:
    total = sum(header[:148]) + 8 * ord(" ") + sum(header[156:])
    try:
        return _number(header[148:156]) == total
    except InputError:
        return False


def _number(field: bytes) -> int:
    if field[0] & 0x80:  # GNU tar writes numbers too large for octal in base 256.
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    digits = field.split(b"\0")[0].strip() or b"0"
    if not re.fullmatch(rb"[0-7]+", digits):
        raise InputError(f"{digits!r} is no size")
    return int(digits, 8)


def _decimal(field: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,18}", field):
        raise InputError(f"{field[:40]!r} is no size")
    return int(field)


def _name(header: bytes) -> bytes:
    name = header[:100].split(b"\0")[0]
    folder = header[345:500].split(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return folder + b"/" + name if folder else name


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _records(content: bytes) -> dict[str, bytes]:
    """Parse the "LENGTH KEY=VALUE" lines of a POSIX header."""
    records, at = {}, 0
    while at < len(content):
        line = re.match(rb"([0-9]{1,18}) ([^=]+)=", content[at:])
        end = at + int(line[1]) if line else 0
        if not line or not at + line.end() < end <= len(content):
            raise InputError(f"{content[at : at + 40]!r} is no record")
        records[_text(line[2])] = content[at + line.end() : end - 1]
        at = end
    return records
