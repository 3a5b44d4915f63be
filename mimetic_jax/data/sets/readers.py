"""Readers of data sets that are published as files of arrays, and of the one that comes installed.

A reader gives the train and the test split: images uint8 [N, h, w, C] and labels int32 [N].
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mimetic_jax.base.errors import InputError, error_text
from mimetic_jax.data.sets.dataset import DatasetInfo, Split


def read_digits() -> tuple[Split, Split]:
    """Scikit-learn's 8x8 digits, split into 1437 train and 360 test examples.

    The split is fixed: with the examples sorted by class, every fifth is a test example, so it has
    a fifth of each class, to within one example. Gray levels 0..16 become 0..255.
    """
    from sklearn.datasets import load_digits

    levels, labels = load_digits(return_X_y=True)
    images = np.rint(levels * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    labels = labels.astype(np.int32)
    is_test = np.zeros(len(labels), bool)
    is_test[np.argsort(labels, kind="stable")[::5]] = True
    return (images[~is_test], labels[~is_test]), (images[is_test], labels[is_test])


_CIFAR_FILES = {
    "cifar10": (tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)),
    "cifar100": (("train",), ("test",)),
}


def read_cifar(folder: Path, info: DatasetInfo) -> tuple[Split, Split] | None:
    """CIFAR's "python version": pickled batches of rows of pixels; of CIFAR-100 the fine labels.

    The batches of a split must hold equally many images each, but not as many as published: a
    cut-down copy of the data can be read too. None if the folder, of the unpacked files, has none.
    """
    files = _CIFAR_FILES[info.name]
    every = [*files[0], *files[1]]
    missing = [name for name in every if not (folder / name).is_file()]
    if len(missing) == len(every):
        return None
    if missing:
        raise InputError(
            f"{folder} lacks {', '.join(missing)}: {len(missing)} of the {len(every)} files "
            f"of {info.name}, which comes from {info.source}"
        )
    train, test = (
        _read_batches([folder / name for name in names], info, published)
        for names, published in zip(files, (info.num_train, info.num_test), strict=True)
    )
    return train, test


def _read_batches(paths: Sequence[Path], info: DatasetInfo, published: int) -> Split:
    batches = [_read_batch(path, info, published // len(paths)) for path in paths]
    first = len(batches[0][1])
    for path, (_, labels) in zip(paths, batches, strict=True):
        if len(labels) != first:
            raise InputError(
                f"{path} holds {len(labels)} images, expected {first} as in {paths[0].name}"
            )
    height, width, channels = info.image_shape
    rows = np.concatenate([pixels for pixels, _ in batches])
    # A row holds one color plane after the other.
    images = rows.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.concatenate([labels for _, labels in batches])


def _read_batch(path: Path, info: DatasetInfo, published: int) -> Split:
    row = math.prod(info.image_shape)
    try:
        values = _unpickled(path)
        pixels = values["data"]
        labels = np.asarray(values["fine_labels" if "fine_labels" in values else "labels"])
        labels = labels.astype(np.int32, casting="same_kind")
    except Exception as error:  # damaged bytes raise almost any in pickle
        raise InputError(
            f"{path} can't be read as a batch of {info.name} ({error_text(error)}): found "
            f"{path.stat().st_size} bytes, expected more than the {published * row} of the pixels "
            f"of {published} images; unpack the archive again"
        ) from error
    kind, shape = getattr(pixels, "dtype", type(pixels).__name__), np.shape(pixels)
    if kind != np.uint8 or len(shape) != 2 or shape[1] != row or not shape[0]:
        raise InputError(f"{path} holds pixels as {kind} {shape}, expected uint8 (images, {row})")
    return pixels, labels


def _unpickled(path: Path) -> dict[str, Any]:
    """The dictionary of arrays and plain values in a pickle, without running code in it."""
    with path.open("rb") as file:
        content = _NumbersOnly(file, encoding="bytes").load()
    return {_text(key): _plain(value) for key, value in content.items()}


class _Noted:
    """The arguments of a call that a pickle asks for, which isn't made, and the state set later."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state


def _plain(value: Any) -> Any:
    """A value of a pickle, and if it is an array, of bytes and what the pickle says of them.

    Arrays are made here, since NumPy's own functions believe every flag of a pickle.
    """
    if not isinstance(value, _Noted):
        return value
    if hasattr(value, "state"):  # of protocols up to 4: made empty, then given its state
        _, shape, dtype, fortran, content = value.state
    else:
        content, dtype, shape, order = value.arguments
        fortran = order == "F"
    kind = _text(dtype.state[1]) + _text(dtype.arguments[0])
    return np.frombuffer(content, kind).reshape(shape, order="F" if fortran else "C")


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("ascii")


def _encode(text: str, encoding: str) -> bytes:
    """Bytes in protocol 2, as Python 3 writes them."""
    return text.encode("latin1")


_ALLOWED = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),  # an argument of _reconstruct
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
}
"""By module and name, of NumPy 1 and 2. What they stand for is never called."""


class _NumbersOnly(pickle.Unpickler):
    """Loads arrays and plain containers only; a plain unpickler would call any function."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _encode
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"refused {module}.{name}: not part of a CIFAR file")
        return _Noted
