"""Reads CIFAR's "python version": pickled rows of pixels, without running code in the pickle."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from mimetic_jax.data.sets.info import DatasetInfo, Split
from mimetic_jax.errors import InputError


def read_batches(
    paths: tuple[Path, ...], info: DatasetInfo, published: int, *, label_key: bytes
) -> Split:
    """The images and labels of one split, from its batches.

    The batches must hold equally many images each, but not as many as published: a cut-down copy of
    the data can be read too.

    Args:
        paths: the batches of the split.
        info: the data set.
        published: examples in the published split.
        label_key: the key of the labels in a batch.

    Returns:
        images uint8 [N, h, w, C] and labels int32 [N].

    Raises:
        InputError: a batch can't be read, or contradicts itself or the others.
    """
    batches = [_read_batch(path, label_key, info, published // len(paths)) for path in paths]
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


def _read_batch(path: Path, label_key: bytes, info: DatasetInfo, published: int) -> Split:
    row = math.prod(info.image_shape)
    try:
        with path.open("rb") as file:
            content = _NumbersOnly(file, encoding="bytes").load()
        pixels, labels = content[b"data"], np.asarray(content[label_key])
    except Exception as error:  # Damaged bytes raise almost any exception in pickle.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"{path} can't be read as a batch of {info.name} ({reason}): found "
            f"{path.stat().st_size} bytes, expected more than the {published * row} of the pixels "
            f"of {published} images; unpack the archive again"
        ) from error
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
        found = f"{getattr(pixels, 'dtype', type(pixels).__name__)} {np.shape(pixels)}"
        raise InputError(f"{path} holds pixels as {found}, expected uint8 (images, {row})")
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


# The function that NumPy names in a pickled array; its module differs between versions.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _NumbersOnly(pickle.Unpickler):
    """Loads arrays and plain containers only; a plain unpickler would call any function."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"refused {module}.{name}: not part of a CIFAR file")
        return _ALLOWED[module, name]
