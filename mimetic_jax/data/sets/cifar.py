"""CIFAR-10 and CIFAR-100, from the original archive or from a TFDS folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from mimetic_jax.data.files import array_record
from mimetic_jax.data.sets import python_batches
from mimetic_jax.data.sets.dataset import ImageDataset
from mimetic_jax.data.sets.table import describe
from mimetic_jax.errors import InputError, unknown


@dataclasses.dataclass(frozen=True)
class _Release:
    archive: str
    batches: python_batches.Layout


_RELEASES = {
    "cifar10": _Release(
        archive="cifar-10-python.tar.gz",
        batches=python_batches.Layout(
            folder="cifar-10-batches-py",
            train=tuple(f"data_batch_{number}" for number in range(1, 6)),
            test=("test_batch",),
            label_key=b"labels",
        ),
    ),
    "cifar100": _Release(
        archive="cifar-100-python.tar.gz",
        batches=python_batches.Layout(
            folder="cifar-100-python",
            train=("train",),
            test=("test",),
            label_key=b"fine_labels",
        ),
    ),
}


def load(name: str, data_dir: str | None) -> ImageDataset:
    """CIFAR-10 or CIFAR-100 with its published split; CIFAR-100 with its fine labels.

    Two forms are read, the first one found: the unpacked python archive, lying in `data_dir` or in
    its folder inside `data_dir`; and `data_dir/NAME/VERSION/` as TFDS prepares it with
    file_format="array_record" (no TensorFlow is needed to read that). TFDS shuffles what it writes:
    the examples are the same, their order and so the fingerprint and the runs aren't.

    Args:
        name: "cifar10" or "cifar100".
        data_dir: the folder to look in; "~" is the home folder.

    Raises:
        InputError: no such data there, or a file of it is missing or damaged.
    """
    if name not in _RELEASES:
        raise unknown("CIFAR data set", name, _RELEASES)
    release, info = _RELEASES[name], describe(name)
    sources = (
        f"unpack {release.archive} from https://www.cs.toronto.edu/~kriz/cifar.html, "
        f'or prepare {name} by TFDS with file_format="array_record"'
    )
    if not data_dir:
        raise InputError(
            f"{name} needs the folder that holds it (data_dir, or --config.data.dir=DIR): {sources}"
        )
    root = Path(data_dir).expanduser()
    if batches := python_batches.find(root, release.batches):
        splits = python_batches.read(batches, release.batches, info)
    elif prepared := array_record.find(root, name):
        splits = array_record.read(prepared, info)
    else:
        raise InputError(
            f"no {name} in {data_dir}{'' if root.is_dir() else ' (no such folder)'}: looked for "
            f"{release.batches.train[0]} there and in {release.batches.folder}/, and for "
            f"{name}/VERSION/dataset_info.json; {sources}"
        )
    return ImageDataset(
        name=name,
        train_images=splits["train"][0],
        train_labels=splits["train"][1],
        test_images=splits["test"][0],
        test_labels=splits["test"][1],
        num_classes=info.num_classes,
    )
