"""Reads the CIFAR "python version": pickled rows of pixels, opened without trusting the pickle."""

from __future__ import annotations

import dataclasses
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from mimetic_jax.data.sets.table import DatasetInfo
from mimetic_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the batches of a release lie and under which key they hold the labels."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    label_key: bytes


def find(root: Path, layout: Layout) -> Path | None:
    """The folder with at least one batch of the layout: `root`, one inside it, or None."""
    for folder in (root, root / layout.folder):
        if any((folder / name).is_file() for name in layout.train + layout.test):
            return folder
    return None


def read(
    folder: Path, layout: Layout, info: DatasetInfo
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Both splits, each as images uint8 [N, h, w, C] and labels int32 [N].

    The files must agree with each other, not with the published sizes: a cut-down copy of the data
    reads too.

    Raises:
        InputError: a batch is missing, can't be read, or contradicts itself or the others.
    """
    missing = [name for name in layout.train + layout.test if not (folder / name).is_file()]
    if missing:
        raise InputError(
            f"{folder} lacks {', '.join(missing)}: {len(missing)} of the "
            f"{len(layout.train + layout.test)} files of {info.name}; unpack the archive again"
        )
    return {
        "train": _read_split(folder, layout.train, layout.label_key, info, info.num_train),
        "test": _read_split(folder, layout.test, layout.label_key, info, info.num_test),
    }


def _read_split(
    folder: Path, names: tuple[str, ...], label_key: bytes, info: DatasetInfo, published: int
) -> tuple[np.ndarray, np.ndarray]:
    batches = [
        _read_batch(folder / name, label_key, info, published // len(names)) for name in names
    ]
    first = len(batches[0][1])
    for name, (_, labels) in zip(names, batches, strict=True):
        if len(labels) != first:
            raise InputError(
                f"{folder / name} holds {len(labels)} images, expected {first} as in {names[0]}"
            )
    height, width, channels = info.image_shape
    rows = np.concatenate([pixels for pixels, _ in batches])
    # A row is one color plane after the other.
    images = rows.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.concatenate([labels for _, labels in batches])


def _read_batch(
    path: Path, label_key: bytes, info: DatasetInfo, published: int
) -> tuple[np.ndarray, np.ndarray]:
    row = math.prod(info.image_shape)
    try:
        with path.open("rb") as file:
            content = _NumbersOnly(file, encoding="bytes").load()
        pixels, labels = content[b"data"], np.asarray(content[label_key])
    except Exception as error:  # Damaged bytes make a pickle fail in almost any way there is.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"{path} can't be read as a batch of {info.name} ({reason}): found "
            f"{path.stat().st_size} bytes, expected {published * row} for the pixels of "
            f"{published} images and some more; unpack the archive again"
        ) from error
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
        found = f"{getattr(pixels, 'dtype', type(pixels).__name__)} {np.shape(pixels)}"
        raise InputError(f"{path} holds pixels of form {found}, expected uint8 (images, {row})")
    if pixels.shape[1] != row or not len(pixels):
        raise InputError(f"{path} holds pixels of shape {pixels.shape}, expected (images, {row})")
    if labels.dtype.kind not in "iu" or labels.shape != pixels.shape[:1]:
        raise InputError(
            f"{path} holds {labels.dtype} labels of shape {labels.shape} for {len(pixels)} images"
        )
    if labels.min() < 0 or labels.max() >= info.num_classes:
        raise InputError(
            f"{path} holds labels from {labels.min()} to {labels.max()}, "
            f"expected 0 to {info.num_classes - 1}"
        )
    return pixels, labels.astype(np.int32)


# What NumPy itself names when it pickles an array; its module has moved between versions.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _NumbersOnly(pickle.Unpickler):
    """Loads arrays and plain containers: a pickle can name any function, and here only these."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"refused {module}.{name}, no part of a CIFAR file")
        return _ALLOWED[module, name]
