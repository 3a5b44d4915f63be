"""Whether XLA's compiled sums on this CPU are right: those of jaxlib 0.10.2 are not."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

_N = 64  # the smallest product that jaxlib 0.10.2 gets wrong


def patterns(E: jax.Array, c: jax.Array) -> dict[str, jax.Array]:
    """Three products with a constant matrix, then an elementwise operation and a sum.

    Args:
        E: [N, N].
        c: a scalar.
    """
    return {
        "rows": jnp.sum((E @ jnp.full_like(E, c)) * E, -1),
        "all": jnp.sum((E @ jnp.ones_like(E)) * E),
        "squares": jnp.mean((E @ (jnp.ones_like(E) / len(E))) ** 2, -1),
    }


def wrong_sums() -> list[str]:
    """The patterns that the compiler of the default device gets wrong, by NumPy's in float64."""
    E, c = np.sin(np.arange(_N * _N, dtype=np.float32)).reshape(_N, _N), np.float32(0.5)
    found = {name: np.asarray(value) for name, value in jax.jit(patterns)(E, c).items()}
    truth = E.astype(np.float64)
    rows = truth.sum(-1)
    right = {"rows": c * rows**2, "all": (rows**2).sum(), "squares": (rows / _N) ** 2}
    return [name for name in right if not np.allclose(found[name], right[name], rtol=1e-4)]


@functools.cache
def warn_of_wrong_sums() -> None:
    """Warn, once a process, if computations run on a CPU and its compiled sums are wrong."""
    if jax.default_backend() == "cpu" and wrong_sums():
        warnings.warn(
            f"jaxlib {jaxlib.version.__version__} computes some sums on this CPU wrong: install "
            "jax and jaxlib 0.10.1, or set "
            "XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=-reduce",
            RuntimeWarning,
            stacklevel=2,
        )
