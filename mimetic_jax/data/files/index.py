"""The index of a tar: where its files are, written once beside it.

    mimetic index gs://BUCKET/ILSVRC2012_img_train.tar

A tar has a header before each file and no list of them, so that all of a large one must be read to
find its files: that takes long over a network, for each process and each start.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from mimetic_jax.data.files.ranged import RangedFile, ranged
from mimetic_jax.data.files.tar import DEAD, STORED, Entry, tar_entries
from mimetic_jax.data.home import AnyPath, located
from mimetic_jax.errors import InputError, check_given, said_by
from mimetic_jax.exits import reported
from mimetic_jax.host.files import open_to_write

_MOST_SCANNED = 2**30
"""Bytes of the largest tar in a bucket whose headers are read at each start."""


def indexed(file: RangedFile, path: AnyPath) -> dict[str, Entry]:
    """What is in a tar: from its index if it has one, else from its headers.

    Raises:
        InputError: the tar is damaged, or its index is, or belongs to another; or a large one in a
            bucket has none.
    """
    beside = _beside(path)
    if beside.is_file():
        return _read(ranged(beside), beside, file.size)
    if not isinstance(path, Path) and file.size > _MOST_SCANNED:
        raise InputError(
            f"{path} has {file.size / 1e9:.1f} GB and no index: mimetic index {path} writes it, "
            f"once, as {beside.name}"
        )
    return tar_entries(file, path)


def write_index(path: AnyPath) -> tuple[AnyPath, int]:
    """Write the index of a tar beside it.

    Returns:
        Its path, and the number of entries.

    Raises:
        InputError: it is no tar, or can't be read.
    """
    file = ranged(path)
    entries = tar_entries(file, path)
    beside = _beside(path)
    listed = {
        "bytes": file.size,
        "files": [
            [k, e.offset, e.stored, e.unpacked] for k, e in entries.items() if not e.is_folder
        ],
        "folders": [name for name, entry in entries.items() if entry.is_folder],
    }
    content = json.dumps(listed).encode()
    if isinstance(beside, Path):
        with open_to_write(beside) as out:
            out.write(content)
    else:
        beside.write_bytes(content)
    return beside, len(entries)


def _read(file: RangedFile, path: AnyPath, size: int) -> dict[str, Entry]:
    try:
        listed = json.loads(file.read(0, file.size))
        folders = {str(name): Entry(0, 0, is_folder=True) for name in listed["folders"]}
        files = {
            str(name): Entry(int(offset), int(stored), DEAD if unpacked == DEAD else STORED)
            for name, offset, stored, unpacked in listed["files"]
        }
        expected = int(listed["bytes"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({said_by(error)}): remove it") from error
    if expected != size:
        raise InputError(
            f"{path} is the index of a tar of {expected:,} bytes, not {size:,}: write it anew"
        )
    return folders | files


def _beside(path: AnyPath) -> AnyPath:
    return path.with_name(f"{path.name}.index")


def main(arguments: Sequence[str]) -> None:
    """Run the command line; bad input is reported in one line, with exit status 2."""
    parser = argparse.ArgumentParser("mimetic index", description="Write the index of a tar.")
    parser.add_argument("tar", metavar="TAR", help="on a disk, or gs://… or s3://…")
    path = parser.parse_args(arguments).tar
    with reported():
        check_given("TAR", path)
        written, count = write_index(located(path))
        print(f"{written}: {count:,} files and folders")
