"""Prepares a data set once, through TFDS, in a format that is read without TensorFlow.

    python -m mimetic_jax.data.prepare NAME --data_dir=DIR [--manual_dir=DIR]

Only this program needs TensorFlow: TFDS unpacks and converts its data sets with it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from mimetic_jax.base.errors import InputError, check_given, error_text
from mimetic_jax.base.exits import reported
from mimetic_jax.base.extras import need
from mimetic_jax.data.files import array_record
from mimetic_jax.data.home import expanded
from mimetic_jax.data.sets.dataset import DatasetInfo
from mimetic_jax.data.sets.table import describe, names

# (name in TFDS, data folder, folder of the files downloaded by hand) -> None
Build = Callable[[str, Path, Path], None]


def prepare(
    name: str, data_dir: str, manual_dir: str | None = None, *, build: Build | None = None
) -> Path:
    """Download and convert a data set into `data_dir/TFDS_NAME/VERSION`, unless it is there.

    Args:
        name: a name that `data.describe` knows.
        data_dir: the folder to write it to; "~" is the home folder.
        manual_dir: the folder of files that need an account to download; DATA_DIR/downloads/manual
            unless given.
        build: replaces TFDS's download and conversion.

    Returns:
        The folder with the prepared data.

    Raises:
        InputError: TFDS doesn't have the data set, it is there in another file format, files to
            download by hand are missing, TensorFlow isn't installed, or TFDS fails.
    """
    info = describe(name)
    if not info.tfds:
        raise InputError(f"{name} isn't in TFDS and can't be prepared: it comes from {info.source}")
    root = expanded(data_dir)
    if prepared := array_record.find(root, info.tfds):
        return _readable(prepared)
    manual = expanded(manual_dir) if manual_dir else root / "downloads" / "manual"
    _check_manual(info, manual)
    try:
        (build or _build)(info.tfds, root, manual)
    except InputError:
        raise
    except Exception as error:  # Anything: network, disk, checksum, TensorFlow.
        raise InputError(f"TFDS couldn't prepare {name} in {root} ({error_text(error)})") from error
    if prepared := array_record.find(root, info.tfds):
        return _readable(prepared)
    raise InputError(f"TFDS finished without writing {root / info.tfds}/VERSION/dataset_info.json")


def _readable(prepared: Path) -> Path:
    path = prepared / "dataset_info.json"
    try:
        found = json.loads(path.read_bytes()).get("fileFormat", "tfrecord")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error_text(error)}): remove {prepared}") from error
    if found != "array_record":
        raise InputError(
            f"{prepared} holds the data as {found}, which needs TensorFlow to read: "
            "remove it, or prepare into another --data_dir"
        )
    return prepared


def _check_manual(info: DatasetInfo, manual: Path) -> None:
    missing = [file for file in info.manual if not (manual / file).is_file()]
    if missing:
        raise InputError(
            f"{info.name} must be downloaded by hand, with an account of {info.source}: "
            f"place {' and '.join(missing)} in {manual} without unpacking, or give their folder as "
            "--manual_dir"
        )


def _build(name: str, root: Path, manual: Path) -> None:
    need("preparing data", "prepare")
    import tensorflow_datasets as tfds

    builder = tfds.builder(name, data_dir=root, file_format="array_record")
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=manual),
    )


def main(arguments: Sequence[str] | None = None, *, build: Build | None = None) -> None:
    """Run the command line; bad input is reported in one line, with exit status 2."""
    parser = argparse.ArgumentParser(
        prog="mimetic prepare",
        description="Prepare a data set once, through TFDS, to be read without TensorFlow.",
    )
    known = [name for name in names() if describe(name).tfds]
    by_hand = [name for name in known if describe(name).manual]
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(known)}")
    parser.add_argument(
        "--data_dir", "--data-dir", required=True, metavar="DIR", help="the folder to write it to"
    )
    parser.add_argument(
        "--manual_dir",
        "--manual-dir",
        metavar="DIR",
        help="the folder of files that need an account to download "
        f"({', '.join(by_hand)}); DATA_DIR/downloads/manual unless given",
    )
    options = parser.parse_args(arguments)
    with reported():
        check_given("--data_dir", options.data_dir)
        check_given("--manual_dir", options.manual_dir)
        folder = prepare(options.name, options.data_dir, options.manual_dir, build=build)
    print(f"{options.name} is in {folder}: train with --config.data.dir={options.data_dir}")


if __name__ == "__main__":
    main()
