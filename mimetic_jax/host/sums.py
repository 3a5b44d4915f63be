"""XLA's compiled sums on CPUs: which of them are wrong, and the flag under which none is.

From jaxlib 0.9.2 on, XLA compiles some sums on CPUs with kernels of its YNN library, and every
version does it wrong for one pattern or another: 0.9.2 to 0.10.1 drop the zeros that pad a
dimension of size 1, as in the gradient of a class token, and from 0.10.2 on a product with a
constant matrix is wrong under a sum. Without these fusions of sums all are right.
"""

from __future__ import annotations

import functools
import os

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from mimetic_jax.base.errors import InputError

FLAG = "--xla_cpu_experimental_ynn_fusion_type"
_RIGHT = f"{FLAG}=-reduce"
_UNTESTED = (0, 13)  # XLA ends the process at a flag that it doesn't know

_N = 64  # the smallest product that jaxlib 0.10.2 gets wrong
_B = 512  # of as many examples of _N numbers jaxlib 0.10.1 loses the padding
_ROWS = 32_768


def compile_right_sums() -> None:
    """Append the flag to XLA_FLAGS, which XLA reads when JAX first asks for devices.

    A value of the flag that is there stays, and so does the name of a file of flags.
    """
    flags = os.environ.get("XLA_FLAGS", "").strip()
    is_file = flags and not flags.startswith("-")
    if FLAG in flags or is_file or jaxlib.version.__version_info__ >= _UNTESTED:
        return
    os.environ["XLA_FLAGS"] = f"{flags} {_RIGHT}".strip()


def patterns(E: jax.Array, c: jax.Array, x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    """Three products with a constant matrix under a sum, and two sums of padded arrays.

    Zeros come after the array alone: a sum with zeros before it ends the process in jaxlib 0.10.1.
    E is [N, N], x [B, 1, N] as the gradient of a class token, and y [rows, 1].
    """
    return {
        "rows": jnp.sum((E @ jnp.full_like(E, c)) * E, -1),
        "all": jnp.sum((E @ jnp.ones_like(E)) * E),
        "squares": jnp.mean((E @ (jnp.ones_like(E) / len(E))) ** 2, -1),
        "token": jnp.sum(jnp.pad(x, ((0, 0), (0, 1), (0, 0))), (0, 1)),
        "column": jnp.sum(jnp.pad(y, ((0, 0), (0, 1))), 0),
    }


def wrong_sums() -> list[str]:
    """List the patterns that the compiler of the default device gets wrong.

    The right values are those of NumPy in float64.
    """
    E, c = np.sin(np.arange(_N * _N, dtype=np.float32)).reshape(_N, _N), np.float32(0.5)
    x, y = np.ones((_B, 1, _N), np.float32), np.ones((_ROWS, 1), np.float32)
    found = {name: np.asarray(value) for name, value in jax.jit(patterns)(E, c, x, y).items()}
    rows = E.astype(np.float64).sum(-1)
    right = {
        "rows": c * rows**2,
        "all": (rows**2).sum(),
        "squares": (rows / _N) ** 2,
        "token": np.full(_N, _B),
        "column": np.array([_ROWS, 0]),
    }
    return [name for name in right if not np.allclose(found[name], right[name], rtol=1e-4)]


@functools.cache
def check_sums() -> None:
    """Refuse, once per process, a CPU on which sums are wrong: JAX had its devices before
    `compile_right_sums`, or XLA_FLAGS has another value of the flag."""
    if jax.default_backend() == "cpu" and (wrong := wrong_sums()):
        raise InputError(
            f"jaxlib {jaxlib.version.__version__} computes some sums wrong on this CPU "
            f"({', '.join(wrong)}), and gradients with them: import mimetic_jax.train before the "
            f"first use of JAX, or set XLA_FLAGS={_RIGHT}"
        )
