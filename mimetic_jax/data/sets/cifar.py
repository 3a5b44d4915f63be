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
    paths: tuple[Path, ...], info: DatasetInfo, published: int, *, label_key: str
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


def _read_batch(path: Path, label_key: str, info: DatasetInfo, published: int) -> Split:
    row = math.prod(info.image_shape)
    try:
        with path.open("rb") as file:
            content = _NumbersOnly(file, encoding="bytes").load()
        values = {_text(key): _plain(value) for key, value in content.items()}
        pixels, labels = values["data"], np.asarray(values[label_key])
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


class _Dtype:
    """What a pickle says of a dtype, without NumPy's own, which believes every flag."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        self.code, self.order = _text(code), "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])

    def read(self, content: bytes, shape: tuple[int, ...], fortran: bool) -> np.ndarray:
        dtype = np.dtype(self.order + self.code)
        return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


class _Array:
    """An array of a pickle up to protocol 4: made empty, then given its state."""

    def __init__(self, *_: object) -> None:
        self.array: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        self.array = dtype.read(content, shape, fortran)


def _array(content: bytes, dtype: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
    """An array of protocol 5."""
    found = _Array()
    found.array = dtype.read(content, shape, order == "F")
    return found


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("ascii")


def _encode(text: str, encoding: str) -> bytes:
    """Bytes in protocol 2, as Python 3 writes them."""
    return text.encode("latin1")


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, _Array) else value


# By module and name, of NumPy 1 and 2. What they stand for is never called.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): None,  # an argument of _reconstruct
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _array for core in ("core", "_core")},
}


class _NumbersOnly(pickle._Unpickler):
    """Loads arrays and plain containers only; a plain unpickler would call any function.

    It is pickle's own in Python: that in C takes gigabytes for nine bytes that ask for a large
    memo.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"refused {module}.{name}: not part of a CIFAR file")
        return _ALLOWED[module, name]
