"""Reads the arrays of a pickle without running code in it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np


def unpickled(path: Path) -> dict[str, Any]:
    """The dictionary of arrays and plain values in a pickle of Python 2 or 3.

    Raises:
        Exception: of almost any kind, where bytes are damaged.
    """
    with path.open("rb") as file:
        content = _NumbersOnly(file, encoding="bytes").load()
    return {_text(key): _plain(value) for key, value in content.items()}


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


class _NumbersOnly(pickle.Unpickler):
    """Loads arrays and plain containers only; a plain unpickler would call any function."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"refused {module}.{name}: not part of a CIFAR file")
        return _ALLOWED[module, name]
