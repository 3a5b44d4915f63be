"""The parts of a state space layer that structure can change: A, Δ, W_B with W_C, the filters."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from mimetic_jax.base.typed import Range
from mimetic_jax.weights.checks import NOT_NEGATIVE, check_key, check_room, counts, number

DECAY = Range(1e-30, 1e6, reason="as its logarithm is stored in float32")
"""Range of −A."""

STEP = Range(1e-6, 1e6)
"""Range of Δ."""

CORRELATION = Range(-1, 1)
"""Range of ρ."""


def log_decay(key: jax.Array, num_heads: int, decay: float = 1.0, power: float = 0.0) -> jax.Array:
    """A_log of each head, where the layer's A is −exp(A_log): A = −decay · u^−power, u ~ U(1, 16).

    A head keeps exp(A Δ) of its state per token: with A near 0 it forgets nothing. `power` 0 gives
    every head the same A; decay 1 and power c are the paper's A = −exp(−c A_log), of Mamba-2's own
    A_log = log u.

    Args:
        key: a `jax.random` key; concrete or traced.
        num_heads: H, of the layer.
        decay: largest −A.
        power: c.

    Returns:
        [H] float32.

    Raises:
        InputError: if a number is out of range.

    Example:
        >>> print(jnp.exp(log_decay(jax.random.key(0), 2, decay=0.001)))
        [0.001 0.001]
    """
    check_key(key)
    (num_heads,) = counts(num_heads=num_heads)
    decay, power = number("decay", decay, DECAY), number("power", power, NOT_NEGATIVE)
    drawn = jnp.log(jax.random.uniform(key, (num_heads,), jnp.float32, 1, 16))
    return math.log(decay) - power * drawn


def step_bias(step: float) -> float:
    """The bias whose softplus is Δ: log(exp(Δ) − 1).

    Args:
        step: Δ.

    Raises:
        InputError: if Δ is out of range.

    Example:
        >>> round(step_bias(1.0), 3)
        0.541
    """
    step = number("step", step, STEP)
    return step + math.log(-math.expm1(-step))


def correlated(key: jax.Array, like: jax.Array, correlation: float = 1.0) -> jax.Array:
    """Noise correlated with another array: ρ W + √(1 − ρ²) σ ε, σ the root mean square of W.

    As W_C of W_B, C_n · B_m follows x_n · x_m: what is read under x is what was written under it.
    W_C W_Bᵀ is aligned with +I by ρ.

    Args:
        key: a `jax.random` key; concrete or traced.
        like: W, any shape.
        correlation: ρ.

    Returns:
        An array of that shape, float32.

    Raises:
        InputError: if ρ isn't in [−1, 1].

    Example:
        >>> kernel = jax.random.normal(jax.random.key(0), (64, 64))
        >>> drawn = correlated(jax.random.key(1), kernel, 0.5)
        >>> print(f"{jnp.corrcoef(drawn.ravel(), kernel.ravel())[0, 1]:.1f}")
        0.5
    """
    check_key(key)
    correlation = number("correlation", correlation, CORRELATION)
    like = jnp.asarray(like, jnp.float32)
    noise = jax.random.normal(key, like.shape, jnp.float32) * jnp.sqrt(jnp.square(like).mean())
    return correlation * like + jnp.sqrt(1 - jnp.square(jnp.float32(correlation))) * noise


def identity_filters(key: jax.Array, taps: int, channels: int, noise: float = 0.0) -> jax.Array:
    """Causal filters near the identity: 1 at the last tap, which reads the token itself, + σ ε.

    Args:
        key: a `jax.random` key; concrete or traced.
        taps: k.
        channels: C.
        noise: σ.

    Returns:
        [k, C] float32.

    Raises:
        InputError: if a size isn't positive or σ is negative.

    Example:
        >>> print(abs(identity_filters(jax.random.key(0), 4, 1)).ravel())
        [0. 0. 0. 1.]
    """
    check_key(key)
    taps, channels = counts(taps=taps, channels=channels)
    check_room((taps, channels))
    noise = number("noise", noise, NOT_NEGATIVE)
    drawn = jax.random.normal(key, (taps, channels), jnp.float32) * noise
    return drawn.at[-1].add(1.0)
