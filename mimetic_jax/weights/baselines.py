"""Initializations to compare with: without them a gain says nothing about structure.

LayerScale isn't here: its initialization is `jnp.full((D,), value)`, the rest of it a model change.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from mimetic_jax.weights.bases import kernel_sizes
from mimetic_jax.weights.checks import NOT_NEGATIVE, check_key, check_room, counts, number


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


def shuffled(key: jax.Array, like: jax.Array) -> jax.Array:
    """The entries of another array in random order.

    It keeps the norm, the mean and the whole distribution of the entries, and destroys every
    relation between them: a stricter control than `norm_matched`, but none for a method that only
    changes the mean.

    Args:
        key: a `jax.random` key; concrete or traced.
        like: the array, any shape.

    Returns:
        An array of the shape and dtype of `like`.

    Example:
        >>> shuffled(jax.random.key(0), jnp.arange(6).reshape(2, 3)).sum()
        Array(15, dtype=int32)
    """
    check_key(key)
    return jax.random.permutation(key, like.ravel()).reshape(like.shape)


def uniform_noise(key: jax.Array, shape: tuple[int, ...], std: float) -> jax.Array:
    """Uniform noise of a given standard deviation.

    U(±√3 std).

    Args:
        key: a `jax.random` key; concrete or traced.
        shape: the shape of the result.
        std: the standard deviation; ≥ 0.

    Returns:
        An array of that shape, float32.

    Raises:
        InputError: if std isn't a finite number ≥ 0, or the array doesn't fit into memory.

    Example:
        >>> print(f"{uniform_noise(jax.random.key(0), (100, 100), std=0.5).std():.1f}")
        0.5

    Reference: with std = ½ D^−½ for query, key, value and out this is the final choice of the
    nanoGPT speed-run (modded-nanogpt, pull request 214 and the commit after it).
    """
    check_key(key)
    check_room(shape)
    std = number("std", std, NOT_NEGATIVE)
    unit = jax.random.uniform(key, shape, jnp.float32, -math.sqrt(3), math.sqrt(3))
    return unit * std


def tfixup(
    key: jax.Array, fan_in: int, fan_out: int, num_layers: int, *, decoder: bool = False
) -> jax.Array:
    """A value, out or MLP kernel of T-Fixup: Xavier's, scaled down with depth.

    s U(±√(6 / (fan_in + fan_out))), s = 0.67 L^−¼ in an encoder and (9 L)^−¼ in a decoder. Query
    and key don't scale with depth: they are Xavier's with gain 1/√2.

    Args:
        key: a `jax.random` key; concrete or traced.
        fan_in: rows; all heads together.
        fan_out: columns; all heads together.
        num_layers: L, of the encoder or decoder.
        decoder: whether it is a decoder.

    Returns:
        [fan_in, fan_out] float32.

    Raises:
        InputError: if a size or the number of layers isn't positive.

    Example:
        >>> kernel = tfixup(jax.random.key(0), 192, 768, num_layers=16)
        >>> bool(jnp.abs(kernel).max() < 0.67 / 2 * (6 / 960) ** 0.5)
        True

    Reference: Improving Transformer Optimization Through Better Initialization (Huang et al.
    2020), as in its released code. The paper drops LayerNorm and warm-up too; this is
    its initialization alone.
    """
    check_key(key)
    fan_in, fan_out = kernel_sizes(fan_in, fan_out)
    (num_layers,) = counts(num_layers=num_layers)
    scale = (9 * num_layers) ** -0.25 if decoder else 0.67 * num_layers**-0.25
    return uniform_noise(key, (fan_in, fan_out), scale * math.sqrt(2 / (fan_in + fan_out)))


def zero_init(fan_in: int, fan_out: int) -> jax.Array:
    """ZerO's kernel: an identity, or a Hadamard matrix where the layer widens.

    A (partial) identity if fan_out ≤ fan_in, else I · H_p / √p · I, H_p the Hadamard matrix of the
    next power of two p ≥ fan_out, truncated to shape. Nothing is random.

    Args:
        fan_in: rows.
        fan_out: columns.

    Returns:
        [fan_in, fan_out] float32 (the transpose of PyTorch's weight).

    Raises:
        InputError: if a size isn't positive.

    Example:
        >>> zero_init(3, 2)
        Array([[1., 0.],
               [0., 1.],
               [0., 0.]], dtype=float32)
        >>> zero_init(2, 4)
        Array([[ 0.5,  0.5,  0.5,  0.5],
               [ 0.5, -0.5,  0.5, -0.5]], dtype=float32)

    Reference: ZerO Initialization (Zhao, Schäfer and Anandkumar 2021), as in its
    released code.
    """
    fan_in, fan_out = kernel_sizes(fan_in, fan_out)
    if fan_out <= fan_in:
        return jnp.eye(fan_in, fan_out, dtype=jnp.float32)
    # Sylvester's H[i, j] is −1 to the power of the number of bits set in both i and j.
    common = jnp.arange(fan_in)[:, None] & jnp.arange(fan_out)[None]
    signs = 1 - 2 * (jax.lax.population_count(common) & 1)
    return signs.astype(jnp.float32) * 2.0 ** (-(fan_out - 1).bit_length() / 2)


def padded_identity(fan_in: int, fan_out: int) -> jax.Array:
    """IDInit's kernel: the identity, repeated along the longer axis.

    W[i, j] = 1 where i ≡ j modulo min(fan_in, fan_out), else 0.

    Args:
        fan_in: rows.
        fan_out: columns.

    Returns:
        [fan_in, fan_out] float32.

    Raises:
        InputError: if a size isn't positive.

    Example:
        >>> padded_identity(2, 4)
        Array([[1., 0., 1., 0.],
               [0., 1., 0., 1.]], dtype=float32)

    Reference: IDInit (Pan et al., ICLR 2025), as in its summaries.
    """
    fan_in, fan_out = kernel_sizes(fan_in, fan_out)
    rows, columns = (jnp.arange(size) % min(fan_in, fan_out) for size in (fan_in, fan_out))
    return (rows[:, None] == columns[None]).astype(jnp.float32)
