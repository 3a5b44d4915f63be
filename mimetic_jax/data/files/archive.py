"""Reads files directly from tar and zip archives: indexed once, never unpacked."""

from __future__ import annotations

import struct
import zipfile
import zlib

import numpy as np

from mimetic_jax.data.files.decode import LIMITS, DecodeError, Limits
from mimetic_jax.data.files.index import indexed
from mimetic_jax.data.files.ranged import RangedFile, ranged
from mimetic_jax.data.files.tar import DEAD, STORED, Entry, path_in
from mimetic_jax.data.home import AnyPath
from mimetic_jax.errors import InputError, said_by


class Archive:
    """The files of a tar or zip by index, for any number of threads and processes.

    A tar of tars (ImageNet's training images) lists the files of the inner tars, in folders named
    as the inner tars without ".tar". A link in a tar has the content of the file that it leads to.
    Of several files with one path, the last counts, as it does for tar. Opening reads only the
    headers, or the index of a tar that `mimetic index` has written beside it.

    Args:
        path: an uncompressed tar, or a zip whose files are stored or deflated; on a disk or in a
            bucket.
        limits: of the size of a file.

    Attributes:
        path: as given.
        in_flight: reads at once that keep its source busy.
        files: paths of the regular files and of links, without "." and "..", in the archive's
            order.
        folders: paths of the folders that have entries of their own.

    Raises:
        InputError: the archive is missing, or is damaged or truncated at the byte given, or has a
            file that isn't stored whole; or it is a large tar in a bucket without an index.
    """

    def __init__(self, path: AnyPath, limits: Limits = LIMITS) -> None:
        self.path, self._limits = path, limits
        self._file = ranged(path)
        self._is_zip = path.suffix.lower() == ".zip"
        self.in_flight = self._file.in_flight
        entries = _zip_entries(self._file, path) if self._is_zip else indexed(self._file, path)
        size = self._file.size
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
            InputError: the archive was truncated or changed after it was opened, or can't be read.
        """
        offset, stored, unpacked, checksum = map(int, self._where[index])
        name = f"{self.path}:{self.files[index]}"
        if unpacked == DEAD:
            raise DecodeError(f"{name} can't be decoded (it is a link to no file of the archive)")
        self._limits.check_bytes(max(stored, unpacked), name)
        if self._is_zip:  # The file's own header may be longer than its directory entry.
            header = self._file.read(offset, 30)
            if header[:4] != b"PK\3\4" or len(header) < 30:
                raise InputError(
                    f"{self.path} has no file header at byte {offset}: damaged or changed"
                )
            offset += 30 + sum(struct.unpack("<HH", header[26:30]))
        content = self._file.read(offset, stored)
        if len(content) < stored:
            raise InputError(
                f"{self.path} is truncated at byte {self._file.size}: "
                f"{self.files[index]} should end at byte {offset + stored}"
            )
        if unpacked != STORED:
            content = _inflated(content, unpacked, name)
        if self._is_zip and zlib.crc32(content) != checksum:
            raise DecodeError(f"{name} is damaged: its CRC-32 isn't the {checksum:08x} of the zip")
        return content


def _zip_entries(file: RangedFile, path: AnyPath) -> dict[str, Entry]:
    try:
        with file.open() as stream, zipfile.ZipFile(stream) as opened:
            infos = opened.infolist()
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"can't read {path} ({error.strerror})") from error
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
        unpacked = info.file_size if deflated else STORED
        where = info.header_offset, info.compress_size, unpacked, info.CRC
        entries[path_in(info.filename)] = Entry(*where, is_folder=info.is_dir())
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
