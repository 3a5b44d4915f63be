"""LAPACK's symmetric eigensolvers without Python's global lock, so that threads run in parallel.

`scipy.linalg.eigh` holds the lock while it computes: a thread pool over many matrices is as slow
as one thread. SciPy publishes the same routines as function pointers for other compilers
(`scipy.linalg.cython_lapack`, which Numba uses too), and ctypes releases the lock to call them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def leading_eigenvectors(gram: np.ndarray, rank: int) -> np.ndarray:
    """Eigenvectors [D, R] of the R largest eigenvalues of a symmetric matrix, largest first.

    They have no meaning if the matrix isn't finite, which isn't checked.

    >>> leading_eigenvectors(np.diag(np.array([1, 3, 2], np.float32)), 2).round().argmax(0)
    array([1, 2])
    """
    matrix = np.array(gram, np.float32, order="F")
    return _solver(len(matrix), rank)(matrix, rank)[:, ::-1]


def _solver(size: int, rank: int) -> Callable[[np.ndarray, int], np.ndarray]:
    # Measured: beyond a quarter of the vectors, computing all of them is faster. Its work space has
    # 2 D² numbers, which LAPACK counts in 32 bits: up to D = 32,766.
    if 4 * rank > size and _work_of_all(size) <= _LARGEST:
        return _divide_and_conquer
    return _relatively_robust


_LARGEST = 2**31 - 1


def _work_of_all(size: int) -> int:
    """Numbers of ssyevd's work space."""
    return 1 + 6 * size + 2 * size * size


def _divide_and_conquer(matrix: np.ndarray, rank: int) -> np.ndarray:
    """The last `rank` eigenvectors by ssyevd, which computes all of them, in place."""
    size = len(matrix)
    values = np.empty(size, np.float32)
    work = np.empty(_work_of_all(size), np.float32)
    integers = np.empty(3 + 5 * size, np.int32)
    _call(
        "ssyevd", b"V", b"L", size, matrix, size, values, work, work.size, integers, integers.size
    )
    return matrix[:, size - rank :]


def _relatively_robust(matrix: np.ndarray, rank: int) -> np.ndarray:
    """The last `rank` eigenvectors by ssyevr, which computes no others."""
    size = len(matrix)
    values = np.empty(size, np.float32)
    vectors = np.empty((size, rank), np.float32, order="F")
    support = np.empty(2 * rank, np.int32)
    found = np.empty(1, np.int32)
    work = np.empty(64 * size, np.float32)  # at least 26 D; more allows blocked code
    integers = np.empty(10 * size, np.int32)
    _call(
        "ssyevr", b"V", b"I", b"L", size, matrix, size, 0.0, 0.0, size - rank + 1, size, 0.0,
        found, values, vectors, size, support, work, work.size, integers, integers.size,
    )  # fmt: skip
    return vectors


def _call(name: str, *arguments: bytes | int | float | np.ndarray) -> None:
    """Call a Fortran routine: all arguments by address, `info` last and checked."""
    info = ctypes.c_int()
    addresses = [_by_address(argument) for argument in arguments]
    _routine(name, len(addresses) + 1)(*addresses, ctypes.byref(info))
    if info.value:
        raise FloatingPointError(f"LAPACK's {name} failed with info {info.value}")


def _by_address(argument: bytes | int | float | np.ndarray) -> Any:
    if isinstance(argument, bytes):
        return ctypes.c_char_p(argument)
    if isinstance(argument, int):
        if argument > _LARGEST:  # ctypes would wrap it
            raise OverflowError(f"LAPACK counts in 32 bits, not to {argument:,}")
        return ctypes.byref(ctypes.c_int(argument))
    if isinstance(argument, float):
        return ctypes.byref(ctypes.c_float(argument))
    return argument.ctypes.data_as(ctypes.c_void_p)


@functools.cache
def _routine(name: str, arity: int) -> Callable[..., None]:
    from scipy.linalg import cython_lapack  # takes 0.1 s: only where it is needed

    capsule = cython_lapack.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arity)(address)
