"""Files of tensors that others wrote, `.npz` and `.safetensors`: arrays, never pickled objects."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError, error_text


def read_file(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a `.npz` or `.safetensors` file, by their names there; see `mapped`.

    Raises:
        InputError: for a file that isn't there, of another suffix, damaged, or that holds more
            than arrays.
    """
    path = os.fspath(path)
    if not path.endswith(".npz"):
        return mapped(path)
    try:
        return _read_npz(path)
    except (*_DAMAGED, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} can't be read ({error_text(error)})") from error


def _read_npz(path: str) -> dict[str, np.ndarray]:
    with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
        arrays = dict(file)
    # NumPy stores bfloat16 as two bytes of no type.
    is_bfloat16 = {name: array.dtype == np.dtype("V2") for name, array in arrays.items()}
    return {n: a.view(jnp.bfloat16) if is_bfloat16[n] else a for n, a in arrays.items()}


def mapped(path: str | os.PathLike[str], mode: Literal["r", "r+"] = "r") -> dict[str, np.ndarray]:
    """The tensors of a `.safetensors` file as a memory map, so that none is read before it is used.

    Args:
        path: the file, or the `.index.json` of a checkpoint in several files beside it.
        mode: "r+" for arrays that can be written, in the file itself.

    Raises:
        InputError: for a file that isn't there or that is damaged.
    """
    path = os.fspath(path)
    found: dict[str, np.ndarray] = {}
    for part in parts(path):
        try:
            found |= _mapped(part, mode)
        except _DAMAGED as error:
            raise InputError(
                f"{part} is no whole safetensors file ({error_text(error)})"
            ) from error
    return found


def parts(path: str) -> list[str]:
    """The files that hold the tensors of a `.safetensors` file or of an `.index.json`.

    Raises:
        InputError: one isn't there, or the index is damaged.
    """
    files = [path]
    if path.endswith(".index.json"):
        try:
            with open(path, encoding="utf-8") as stream:
                weight_map = json.load(stream)["weight_map"]
            names = sorted({os.fspath(name) for name in weight_map.values()})
        except _DAMAGED as error:
            raise InputError(f"{path} can't be read as an index ({error_text(error)})") from error
        if bad := [name for name in names if os.path.basename(name) != name]:
            raise InputError(f"{path} names {bad[0]!r}, which isn't a file beside it")
        files = [os.path.join(os.path.dirname(path), name) for name in names]
    for file in files:
        if not os.path.isfile(file):
            raise InputError(f"there is no file {file}")
    return files


def _mapped(path: str, mode: Literal["r", "r+"]) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > os.path.getsize(path) - 8:
            raise ValueError(f"its header says {size:,} bytes")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    whole = np.memmap(path, np.uint8, mode, offset=0)[8 + size :]
    found = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        if not 0 <= start <= end <= whole.size:
            raise ValueError(f"{name} ends at byte {end:,} of {whole.size:,}")
        found[name] = whole[start:end].view(dtype).reshape(entry["shape"])
    return found


_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What JSON that isn't as expected makes its readers raise."""
_DTYPES: Mapping[str, Any] = {
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    "BOOL": np.bool_,
    "C64": "<c8",
    "BF16": jnp.bfloat16,
    "F8_E4M3": jnp.float8_e4m3fn,
    "F8_E5M2": jnp.float8_e5m2,
    "F8_E8M0": jnp.float8_e8m0fnu,
}
