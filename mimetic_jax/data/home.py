"""Paths that a user writes, with "~" for a home folder."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from mimetic_jax.errors import InputError, said_by
from mimetic_jax.extras import need

if TYPE_CHECKING:
    from etils import epath

AnyPath: TypeAlias = "Path | epath.Path"
"""On a disk, or in a bucket."""
_Path = TypeVar("_Path", bound="AnyPath")
_BUCKETS = {"gs": ("gcsfs", "gcs"), "s3": ("s3fs", "s3")}
"""The module that reads a kind of bucket, and the extra that installs it."""

INSTALLED = {
    "digits": "comes with scikit-learn",
    "python_docs": "comes with Python",
    **dict.fromkeys(("dyck", "copying", "associative", "induction"), "is drawn from a key"),
}
"""Data sets that are read from no folder, and where they come from."""


def expanded(path: str) -> Path:
    """The path with the home folder in place of "~" or "~USER".

    Raises:
        InputError: there is no such user, the system takes no such path, or it is in a bucket.

    >>> expanded("data/cifar")
    PosixPath('data/cifar')
    """
    if address := re.match(r"([a-z][a-z\d]+):/+", path):
        scheme, rest = address[1], path[address.end() :]
        if scheme in _BUCKETS and not path.startswith(f"{scheme}://"):
            raise InputError(f"{path} has one slash where a bucket has two: {scheme}://{rest}")
        how = "nor in gs:// or s3://: copy it to a disk first"
        if scheme in _BUCKETS:
            how = (
                "and only workdirs and archives of images (.tar, .zip) are read from buckets: "
                f"mount it by gcsfuse, or gcloud storage cp --recursive {path} DIR"
            )
        raise InputError(f"{path} is not on a local disk, {how}")
    try:
        found = Path(path).expanduser()
        found.exists()
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path[:200]} can't be opened ({reason})") from error
    return found


def located(path: str) -> AnyPath:
    """The path, as `expanded`; or what is in a bucket, gs://BUCKET/NAME or s3://BUCKET/NAME.

    Raises:
        InputError: as `expanded`; or the bucket can't be reached.
    """
    in_bucket = re.match(rf"({'|'.join(_BUCKETS)})://[^/]", path)
    return reached(path, "data in") if in_bucket else expanded(path)


@functools.cache
def reached(address: str, what: str) -> epath.Path:
    """A path in a bucket that can be read.

    Args:
        address: of it.
        what: is there, in the error.

    Raises:
        InputError: its extra isn't installed, or it can't be reached; the error has the reason.
    """
    module, extra = _BUCKETS[address.partition("://")[0]]
    if not importlib.util.find_spec(module):
        need(f"{what} {address}", extra)
    from etils import epath

    path = epath.Path(address)
    try:
        path.exists()
    except Exception as error:  # whatever a missing login, bucket or network makes a client raise
        raise InputError(f"{what} {address} can't be reached ({said_by(error)})") from error
    return path


def existing(found: _Path) -> _Path:
    """The path, if there is a file or folder.

    Raises:
        InputError: there is none, or it is a pipe, a device or the like.
    """
    if not (found.is_file() or found.is_dir()):
        raise InputError(f"there is no file or folder {found}")
    return found


def check_unused(name: str, data_dir: str | None, own: str) -> None:
    """Check that no folder is given for a data set of `INSTALLED`.

    Args:
        name: of the data set.
        data_dir: what is given.
        own: names of the sets that read such a folder.

    Raises:
        InputError: there is one: the caller would train on other data than it names.
    """
    if data_dir:
        raise InputError(
            f"data.dir {data_dir} is not used: {name} {INSTALLED[name]}; for data of your own set "
            f"data.name to {own}"
        )


def name_of(path: AnyPath) -> str:
    """The name of the data in a folder or file: of the folder itself for "." and "..", too.

    >>> name_of(Path("data/flowers/../tulips.tar"))
    'tulips'
    """
    return Path(os.path.abspath(path)).stem
