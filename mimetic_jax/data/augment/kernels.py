"""Kernels of interpolation: the weight of a pixel by its distance."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def interpolating(distance: jax.Array, cubic: jax.Array | bool, a: float) -> jax.Array:
    """The linear kernel max(0, 1 - |x|), or Keys' cubic.

    |x| < 1: (a + 2) |x|³ - (a + 3) |x|² + 1; |x| < 2: a (|x|³ - 5 |x|² + 8 |x| - 4)

    >>> interpolating(jnp.array([0.0, 0.5, -1.5]), False, -1.0).tolist()
    [1.0, 0.5, 0.0]
    >>> interpolating(jnp.array([0.0, 0.5, -1.5]), True, -1.0).tolist()
    [1.0, 0.625, -0.125]

    Args:
        distance: x, in pixels.
        cubic: which; may be traced.
        a: the slope of the cubic at 1: -1/2 or -1.

    Reference: Keys 1981, "Cubic convolution interpolation for digital image processing".
    """
    x = jnp.abs(distance)
    linear = jnp.maximum(1 - x, 0)
    if cubic is False:
        return linear
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return jnp.where(cubic, jnp.where(x < 1, near, jnp.where(x < 2, far, 0)), linear)
