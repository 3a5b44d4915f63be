"""Downloads a data set's own files, once.

    python -m mimetic_jax.data.download cifar10 --data_dir=DIR

A broken download continues where it broke, and every file is checked against its checksum before
it is used.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import os
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from mimetic_jax.data.home import expanded
from mimetic_jax.data.remote import REMOTE, Remote
from mimetic_jax.errors import InputError, check_given, unknown
from mimetic_jax.exits import reported

_BLOCK = 1 << 20
_PATIENCE = 30  # seconds without a byte


def download(name: str, data_dir: str) -> Path:
    """Download what a data set lacks in a folder, and unpack it.

    Files arrive in `data_dir/downloads` if they are archives to unpack, which stay there, else
    where they are read.

    Args:
        name: one of `REMOTE`.
        data_dir: the folder to write to; "~" is the home folder.

    Returns:
        The folder, for `config.data.dir`.

    Raises:
        InputError: the name is unknown, the server can't be reached or ends too early, or a file
            isn't the published one; it is kept under another name.
    """
    if name not in REMOTE:
        raise unknown("data set to download", name, REMOTE)
    root = expanded(data_dir)
    for remote in REMOTE[name]:
        if remote.gives and (root / remote.gives).exists():
            continue
        path = root / ("downloads" if remote.gives else remote.folder) / remote.name
        if not path.exists():
            try:
                _fetch(remote, path)
            finally:
                _show("\n")
        if remote.gives:
            _unpack(path, root, remote.gives)
    return root


def _fetch(remote: Remote, path: Path) -> None:
    """Download a file; what of it is there from an earlier call isn't asked for again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    have, size = part.stat().st_size if part.exists() else 0, 0
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={have}-"})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            have = have if answer.status == http.client.PARTIAL_CONTENT else 0
            size = have + int(answer.headers.get("Content-Length", 0))
            with part.open("ab" if have else "wb") as file:
                while block := answer.read(_BLOCK):
                    file.write(block)
                    have += len(block)
                    _show(f"{path.name} {have / 2**20:,.0f} of {size / 2**20:,.0f} MiB")
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:  # nothing is left to ask for
            raise InputError(f"{remote.url}: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise InputError(
            f"{remote.url}: {error}; {have:,} bytes are kept, the same command continues"
        ) from error
    if have < size:
        raise InputError(
            f"{remote.url} ended after {have:,} of {size:,} bytes: the same command continues"
        )
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if found != remote.md5:
        damaged = path.with_name(f"{path.name}.damaged")
        os.replace(part, damaged)
        raise InputError(
            f"{remote.url} isn't the published file: its MD5 is {found}, not {remote.md5}; it is "
            f"kept as {damaged}"
        )
    os.replace(part, path)


def _unpack(archive: Path, root: Path, gives: str) -> None:
    """Unpack beside the target, then rename: a killed process leaves no half of it."""
    with tempfile.TemporaryDirectory(dir=root, prefix=".unpacks_") as folder:
        try:
            if archive.suffix == ".zip":
                shutil.unpack_archive(archive, folder)
            else:  # the filter refuses links, devices and paths that lead out of the folder
                shutil.unpack_archive(archive, folder, filter="data")
            os.replace(Path(folder) / gives, root / gives)
        except (OSError, EOFError, tarfile.TarError, shutil.ReadError) as error:
            raise InputError(f"{archive} can't be unpacked: {error}") from error


def _show(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{line}", end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; bad input is reported in one line, with exit status 2."""
    parser = argparse.ArgumentParser(
        prog="mimetic download",
        description="Download a data set's own files, once.",
    )
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(sorted(REMOTE))}")
    parser.add_argument(
        "--data_dir", "--data-dir", required=True, metavar="DIR", help="the folder to write it to"
    )
    options = parser.parse_args(arguments)
    with reported():
        check_given("--data_dir", options.data_dir)
        folder = download(options.name, options.data_dir)
    print(f"{options.name} is in {folder}: train with --config.data.dir={options.data_dir}")


if __name__ == "__main__":
    main()
