"""Initializations to compare with: without them a gain says nothing about structure."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def norm_matched(key: jax.Array, like: jax.Array) -> jax.Array:
    """Independent normal noise with the Frobenius norm of another array.

    ε · ‖like‖ / ‖ε‖, ε standard normal: the control for "it was only the scale".

    Args:
        key: a `jax.random` key; concrete or traced.
        like: the array whose norm is matched, any shape.

    Returns:
        An array of the shape of `like`, float32; zeros where `like` is zero.

    Example:
        >>> like = jnp.eye(8)
        >>> drawn = norm_matched(jax.random.key(0), like)
        >>> round(float(jnp.linalg.norm(drawn) / jnp.linalg.norm(like)), 5)
        1.0
    """
    noise = jax.random.normal(key, like.shape, jnp.float32)
    return noise * (jnp.linalg.norm(like.ravel()) / jnp.linalg.norm(noise.ravel()))
