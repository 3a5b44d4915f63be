"""That draws are the same alone and inside a program."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np


def agrees_inside_a_program(draws: Callable[[jax.Array], tuple[jax.Array, ...]]) -> None:
    """Float32 draws of two keys, together under jit and vmap, equal those of each key."""
    keys = jax.random.split(jax.random.key(0), 2)
    traced = jax.jit(jax.vmap(draws))(keys)
    for index, key in enumerate(keys):
        for together, alone in zip(traced, draws(key), strict=True):
            np.testing.assert_allclose(together[index], alone, atol=1e-5)
            assert alone.dtype == np.float32
