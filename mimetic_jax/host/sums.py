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


def compile_right_sums() -> None:
    """Append the flag to XLA_FLAGS, which XLA reads when JAX first asks for devices.

    A value of the flag that is there stays, and so does the name of a file of flags.
    """
    flags = os.environ.get("XLA_FLAGS", "").strip()
    is_file = flags and not flags.startswith("-")
    if FLAG in flags or is_file or jaxlib.version.__version_info__ >= _UNTESTED:
        return
    os.environ["XLA_FLAGS"] = f"{flags} {_RIGHT}".strip()


def right_sums() -> bool:
    """Tell whether the default device sums a product with a constant matrix right, which jaxlib
    0.10.2 and later don't, and padded arrays, which 0.9.2 to 0.10.1 don't."""

    @jax.jit
    def sums(x: jax.Array, y: jax.Array, z: jax.Array) -> tuple[jax.Array, ...]:
        product = jnp.sum((x @ jnp.full_like(x, 0.5)) * x, -1)
        token = jnp.sum(jnp.pad(y, ((0, 0), (0, 1), (0, 0))), (0, 1))
        return product, token, jnp.sum(jnp.pad(z, ((0, 0), (0, 1))), 0)

    ones = (np.ones(shape, np.float32) for shape in ((64, 64), (512, 1, 64), (32_768, 1)))
    product, token, column = sums(*ones)
    return (
        np.allclose(product, 64 * 32)
        and np.allclose(token, 512)
        and np.allclose(column, [32_768, 0])
    )


@functools.cache
def check_sums() -> None:
    """Refuse, once per process, a CPU on which sums are wrong: JAX had its devices before
    `compile_right_sums`, or XLA_FLAGS has another value of the flag."""
    if jax.default_backend() == "cpu" and not right_sums():
        raise InputError(
            f"jaxlib {jaxlib.version.__version__} computes some sums wrong on this CPU, and "
            "gradients with them: import mimetic_jax.train before the first use of JAX, or set "
            f"XLA_FLAGS={_RIGHT}"
        )
