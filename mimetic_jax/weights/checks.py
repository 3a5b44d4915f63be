"""Checks of what the functions of this package are given: keys, numbers, sizes, dtypes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import COUNT, Range, converted
from mimetic_jax.host.memory import available_bytes

_LARGEST = 10**6
_OVERFLOW = "as float32 overflows in powers of larger numbers"
ANY_SIGN = Range(-_LARGEST, _LARGEST, overflow=_OVERFLOW)
NOT_NEGATIVE = Range(0, _LARGEST, overflow=_OVERFLOW)
CORRELATION = Range(-1, 1)
POSITIVE = Range(1e-12, _LARGEST, overflow=_OVERFLOW)
"""Ranges of constants. A Gram matrix has the squares of a product's singular values, and
eigensolvers compute its norm in float32: fourth powers, which fit at any width. Squares below
1e-24 lose digits."""

FILTER = Range(1, 255, odd=True)
"""Range of the sides of filters: they have a center, and all their offsets are listed."""

_SMALL = 2**28
"""Bytes that need no look at the memory."""


def check_key(key: object) -> None:
    """Check that this is one key of `jax.random`: of `key(seed)`, or of the older `PRNGKey(seed)`.

    >>> check_key(3)
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: the key must be jax.random.key(seed), not 3
    """
    if not isinstance(key, jax.Array):
        known = key is None or isinstance(key, int)
        found = repr(key) if known else f"a {type(key).__name__}"
        raise InputError(f"the key must be jax.random.key(seed), not {found}")
    if not isinstance(key, jax.core.Tracer) and key.is_deleted():
        raise InputError("the key must be jax.random.key(seed), not a deleted array")
    if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        single = key.ndim == 0
    else:
        raw = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
        single = key.dtype == "uint32" and key.shape == raw.shape
    if not single:
        raise InputError(
            f"the key must be one jax.random.key(seed), not {key.dtype} of shape {key.shape}"
        )


def number(name: str, value: Any, within: Range) -> Any:
    """Return a finite number in a range, as a float; a traced number as it is.

    >>> number("alpha", -1, NOT_NEGATIVE)
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: alpha must be a number in [0, 1000000]; got -1
    """
    return converted(name, Annotated[float, within], value)


def counts(**sizes: Any) -> list[int]:
    """Positive integers, such as widths and numbers of heads.

    >>> counts(dim=16, num_heads=0)
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: num_heads must be an integer ≥ 1; got 0
    """
    return [converted(name, Annotated[int, COUNT], size) for name, size in sizes.items()]


def pair(name: str, value: Any) -> tuple[int, int]:
    """Two positive integers, such as a grid (h, w) or the shape of a kernel.

    >>> pair("the grid", (14, 0))
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: the grid[1] must be an integer ≥ 1; got 0
    """
    found: tuple[int, int] = converted(name, Annotated[tuple[int, int], COUNT], value)
    return found


def check_room(*shapes: Sequence[int]) -> None:
    """Check that float32 arrays of these shapes fit into memory together, before they are drawn.

    XLA ends the process if it can't allocate. Inside a program nothing is checked: it may run on
    another machine.
    """
    needed = sum(4 * math.prod(shape) for shape in shapes)
    if needed <= _SMALL or isinstance(jnp.zeros(()), jax.core.Tracer):
        return
    if needed > (free := available_bytes()):
        largest = " x ".join(map(str, max(shapes, key=math.prod)))
        raise InputError(
            f"arrays such as {largest} need {needed / 2**30:,.1f} GiB of memory, and "
            f"{free / 2**30:,.1f} GiB are available"
        )


def check_dtype(dtype: Any, name: str) -> Any:
    """Return the dtype, after a check that it holds weights: floating point numbers of both signs.

    >>> check_dtype("int32", "dtype")
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: dtype int32 can't hold weights; pass a floating point dtype
    """
    try:
        known = jnp.dtype(dtype)
        signed = jnp.issubdtype(known, jnp.floating) and float(jnp.finfo(known).min) < 0
    except (TypeError, ValueError):
        known, signed = dtype, False
    if not signed:
        raise InputError(f"{name} {known} can't hold weights; pass a floating point dtype")
    return known


def in_dtype(name: str, array: Any, dtype: Any) -> Any:
    """Return an array in a dtype of `check_dtype`, after a check that it holds the values.

    >>> in_dtype("out", np.array([1e5]), "float16")
    Traceback (most recent call last):
    mimetic_jax.base.errors.InputError: out: dtype float16 can't hold weights of up to 1e+05
    """
    with np.errstate(over="ignore"):
        cast = array.astype(dtype, copy=False)
    if not is_finite(cast):
        largest = float(np.abs(np.asarray(array)).max())
        raise InputError(f"{name}: dtype {dtype} can't hold weights of up to {largest:.3g}")
    return cast


def is_finite(array: Any) -> bool:
    """Tell whether an array has finite real numbers alone, as far as this process can see them."""
    if isinstance(array, jax.core.Tracer) or not is_here(array):
        return True
    try:
        with np.errstate(over="ignore"):  # dtypes of 8 bits and less have no test of their own
            return bool(np.isfinite(np.asarray(array).astype(np.float32, copy=False)).all())
    except (TypeError, ValueError):
        return False


def is_here(array: Any) -> bool:
    """Tell whether this process has all of a concrete array."""
    return not isinstance(array, jax.Array) or (
        array.is_fully_addressable or array.is_fully_replicated
    )
