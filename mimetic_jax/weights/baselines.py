"""The control of a scheme: without it a gain says nothing about structure."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mimetic_jax.weights.checks import check_key


def norm_matched(key: jax.Array, like: jax.Array) -> jax.Array:
    """Independent normal noise with the Frobenius norm of another array.

    ε · ‖like‖ / ‖ε‖, ε standard normal: the control for gains that come from the scale alone.

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
    check_key(key)
    like = jnp.asarray(like, jnp.float32)
    noise = jax.random.normal(key, like.shape, jnp.float32)
    return noise * (jnp.linalg.norm(like.ravel()) / jnp.linalg.norm(noise.ravel()))
