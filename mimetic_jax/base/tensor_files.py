"""Files of tensors that others wrote, `.npz` and `.safetensors`: arrays, never pickled objects."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError, check_no_pointer, error_text


def read_file(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the tensors of a `.npz` or `.safetensors` file, by their names there; see `mapped`."""
    path = os.fspath(path)
    if not path.endswith(".npz"):
        return mapped(path)
    _check_whole(path)
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is not a complete .npz file (a zip archive)")
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
    """Return the tensors of a `.safetensors` file as a memory map, so that none is read before it
    is used.

    The file may be the `.index.json` of a checkpoint in several files beside it. With mode "r+"
    arrays can be written, in the file itself. A file may hold tensors that the index assigns to
    another one, or to none: copies of old values that programs don't read.
    """
    path = os.fspath(path)
    files = {}
    for part in checkpoint_files(path):
        try:
            files[part] = _mapped(part, mode)
        except _DAMAGED as error:
            raise InputError(
                f"{part} is not a complete safetensors file ({error_text(error)})"
            ) from error
    if not path.endswith(".index.json"):
        return files[path]
    found = {}
    for name, part in _weight_map(path).items():
        if name not in files[part]:
            raise InputError(f"{path} names {name} in {part}, which doesn't hold it")
        found[name] = files[part][name]
    return found


def checkpoint_files(path: str) -> list[str]:
    """List the files that hold the tensors of a `.safetensors` file or of an `.index.json`.

    Raises:
        InputError: for a file that is missing, and for one file of a checkpoint in several, in
            which layers are missing and others are only in part.
    """
    files = sorted(set(_weight_map(path).values())) if path.endswith(".index.json") else [path]
    for file in files:
        if not os.path.isfile(file):
            raise InputError(f"there is no file {file}")
        _check_whole(file)
    if not path.endswith(".index.json"):
        _check_alone(path)
    return files


_NUMBERED = re.compile(r"\d+[-_]?of[-_]?(\d+)(?!\d)")
"""One file of several in a name, as Hugging Face's libraries and others write it."""
_RANKED = re.compile(r"(?<![a-z])(?:consolidated|[mpt]p_rank|^rank|shard|part)[._-]?(\d+)(?!\d)")
"""One file of several by its place, as Meta's, Megatron's and others' programs write it."""


def _check_alone(path: str) -> None:
    """Raise InputError for one of the files of a checkpoint, by an index beside it or its name."""
    folder, name = os.path.split(path)
    beside = sorted(os.listdir(folder or "."))
    indexes = [os.path.join(folder, other) for other in beside if other.endswith(".index.json")]
    of_index: dict[str, set[str]] = {}
    for path_of_index in indexes:
        with contextlib.suppress(InputError):  # one that can't be read may be another program's
            of_index[path_of_index] = set(_weight_map(path_of_index).values())
    index = next((index for index, files in of_index.items() if path in files), None)
    give = index or (indexes or ["the .index.json that belongs to them"])[0]
    count = len(of_index[index]) if index else 1
    if numbered := _NUMBERED.search(name):
        count = max(count, int(numbered[1]))
    elif not index and (ranked := _RANKED.search(name)):
        start, end = map(re.escape, (name[: ranked.start(1)], name[ranked.end(1) :]))
        count = sum(bool(re.fullmatch(rf"{start}\d+{end}", other)) for other in beside)
        give = "one in which they are joined"
    if count > 1:
        raise InputError(f"{path} is one of {count} files of a checkpoint; pass {give}")


def _check_whole(file: str) -> None:
    if os.path.isfile(file):
        with open(file, "rb") as stream:
            check_no_pointer(file, stream.read(64))


def _weight_map(path: str) -> dict[str, str]:
    """The path of the file of each tensor, by an index."""
    _check_whole(path)
    try:
        with open(path, encoding="utf-8") as stream:
            weight_map = json.load(stream)["weight_map"]
        files = {name: os.fspath(file) for name, file in weight_map.items()}
    except _DAMAGED as error:
        raise InputError(f"{path} can't be read as an index ({error_text(error)})") from error
    if bad := [file for file in files.values() if os.path.basename(file) != file]:
        raise InputError(f"{path} names {bad[0]!r}, which isn't a file beside it")
    return {name: os.path.join(os.path.dirname(path), file) for name, file in files.items()}


def _mapped(path: str, mode: Literal["r", "r+"]) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > min(os.path.getsize(path) - 8, _LARGEST_HEADER):
            raise ValueError(f"its header says {size:,} bytes")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    whole = np.memmap(path, np.uint8, mode, offset=0)[8 + size :]
    found = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        if not 0 <= start <= end <= whole.size:
            raise ValueError(f"{name} ends at byte {end:,} of {whole.size:,}")
        stored = whole[start:end]
        if known := _DTYPES.get(entry["dtype"]):
            found[name] = stored.view(np.dtype(known)).reshape(entry["shape"])
        else:  # numbers of other programs, several in a byte: their bytes, which hold no weights
            rows = math.prod(entry["shape"][:-1])
            found[name] = stored.reshape(rows, -1) if rows and not stored.size % rows else stored
    return found


_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What JSON that isn't as expected makes its readers raise."""
_LARGEST_HEADER = 100_000_000
"""Bytes, as of the format's own reader: more would be memory for a file that isn't one."""
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
    "F8_E4M3FNUZ": jnp.float8_e4m3fnuz,
    "F8_E5M2FNUZ": jnp.float8_e5m2fnuz,
}
