"""Files of tensors that others wrote, `.npz` and `.safetensors`: arrays, never pickled objects."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Collection

import jax.numpy as jnp
import numpy as np

from mimetic_jax.errors import InputError, said_by

_MOST_INFLATED = 100
"""How many times its size a `.npz` may unpack to; weights shrink by less than a tenth."""


def read_file(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a `.npz` or `.safetensors` file, by their names there.

    Raises:
        InputError: for a file that isn't there, of another suffix, damaged, or that holds more
            than arrays.
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise InputError(f"there is no checkpoint {path}")
    if not path.endswith((".npz", ".safetensors")):
        raise InputError(f"{path} is neither .npz nor .safetensors")
    try:
        return _read_npz(path) if path.endswith(".npz") else _read_safetensors(path)
    except Exception as error:  # whatever a damaged file makes the readers raise
        raise InputError(f"{path} can't be read as a checkpoint ({said_by(error)})") from error


def check_floating(name: str, array: np.ndarray, ndims: Collection[int]) -> None:
    """Check that a tensor of a file has floating-point numbers, and as many axes as one of these.

    Raises:
        InputError: it hasn't.
    """
    if array.ndim not in ndims or not jnp.issubdtype(array.dtype, jnp.floating):
        raise InputError(
            f"{name[:80]!r} is {array.dtype} {array.shape}, not floating point of "
            f"{' or '.join(map(str, ndims))} axes"
        )


def _read_npz(path: str) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > _MOST_INFLATED * os.path.getsize(path):
        raise ValueError(f"its {os.path.getsize(path):,} bytes unpack to {unpacked:,}")
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    # NumPy stores bfloat16 as two bytes of no type.
    is_bfloat16 = {name: array.dtype == np.dtype("V2") for name, array in arrays.items()}
    return {n: a.view(jnp.bfloat16) if is_bfloat16[n] else a for n, a in arrays.items()}


def _read_safetensors(path: str) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(path)
