"""Depthwise convolution filters [k, k, C]: drawn from a covariance, or simple controls."""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.typed import Range
from mimetic_jax.weights.checks import check_key, check_room, counts, number
from mimetic_jax.weights.factor import Array, traced_eigh

FilterKind = Literal["random", "impulse", "box"]

WIDTH = Range(1e-3, 1e6)
"""Range of σ. A Gaussian of variance 1e-3 pixels is one pixel, of 1e6 constant."""


def conv_covariance_2022(size: int, sigma: float) -> np.ndarray:
    """Covariance of a filter's pixels in closed form. Experimental.

    Σ = ½ (Σ̂ + Σ̂ᵀ), Σ̂ = M ⊙ (C − ½ S), over pairs of pixels (i, j), (l, m): with the Gaussian
    Z[i, j] = exp(−((i − c)² + (j − c)²) / 2σ), c = ⌊k/2⌋, M holds Z[i, j], S holds Z[l, m] and C
    holds, at (l, m), Z shifted to (i, j) with wrap-around. Negative eigenvalues (a few percent of
    the largest) become zero.

    Experimental: the paper has no public code, and this formula was written from memory, not
    checked against its text, so don't report its results as the paper's.

    Args:
        size: k.
        sigma: σ > 0, the width of the Gaussian; it enters as a variance.

    Returns:
        [k², k²] float32, pixels in row-major order; a NumPy array, as it is a constant.

    Raises:
        InputError: if k or σ isn't positive.

    Example:
        >>> covariance = conv_covariance_2022(7, sigma=0.5)
        >>> covariance.shape, f"variance in the center {covariance[24, 24]:.1f}"
        ((49, 49), 'variance in the center 0.5')

    Reference: Understanding the Covariance Structure of Convolutional Filters (Trockman, Willmott
    and Kolter 2022), its closed-form construction.
    """
    (size,) = counts(size=size)
    check_room((2, size**4))  # in float64
    sigma = number("sigma", sigma, WIDTH)
    pixels, center = np.arange(size), size // 2
    line = np.exp(-((pixels - center) ** 2) / (2 * sigma))
    shifted = line[(pixels - pixels[:, None] + center) % size]
    # Gaussians are separable: in two dimensions they are Kronecker products.
    plane = np.kron(line, line)
    halves = plane[:, None] * (np.kron(shifted, shifted) - plane / 2)
    root = _root((halves + halves.T) / 2)
    return np.asarray(root @ root, np.float32)


def sample_filters(key: jax.Array, covariance: Array, channels: int) -> jax.Array:
    """Filters with normal pixels of a given covariance, independent across channels.

    f_c = Σ^½ ε_c, ε_c standard normal and Σ^½ the symmetric root. The root is unique, so that a
    key gives the same filters on every backend, to float precision. Negative eigenvalues count
    as 0.

    Args:
        key: a `jax.random` key; concrete or traced.
        covariance: Σ [k², k²], pixels in row-major order; concrete or traced.
        channels: C.

    Returns:
        [k, k, C] float32.

    Raises:
        InputError: if the covariance isn't a symmetric [k², k²] or C isn't positive.

    Example:
        >>> filters = sample_filters(jax.random.key(0), conv_covariance_2022(7, 0.5), channels=256)
        >>> filters.shape
        (7, 7, 256)

    Reference: Understanding the Covariance Structure of Convolutional Filters.
    """
    check_key(key)
    size = math.isqrt(covariance.shape[0]) if covariance.ndim else 0
    if size < 1 or covariance.shape != (size**2, size**2):
        raise InputError(f"a covariance of shape {covariance.shape} is not [k², k²]")
    (channels,) = counts(channels=channels)
    check_room((size**2, channels))
    noise = jax.random.normal(key, (size**2, channels), jnp.float32)
    root = jnp.asarray(_root(covariance), jnp.float32)
    return jnp.matmul(root, noise, precision="highest").reshape(size, size, channels)


def conv_filters(
    key: jax.Array, size: int, channels: int, kind: FilterKind = "random"
) -> jax.Array:
    """Simple filters of equal energy: random, one pixel, or constant.

    "random": uniform in ±1/k, PyTorch's default; "impulse": √⅓ at one random pixel of each
    channel; "box": √⅓ / k everywhere. The squared norm of a channel is ⅓, in "random" on average.

    The paper also freezes these filters, which is the optimizer's task. Of two public codes this
    follows the energy-matched one; the later one has √(1/k) in place of √⅓, equal only at k = 3.

    Args:
        key: a `jax.random` key; concrete or traced. Unused by "box".
        size: k.
        channels: C.
        kind: "random", "impulse" or "box".

    Returns:
        [k, k, C] float32.

    Raises:
        InputError: for an unknown kind, or sizes that aren't positive.

    Example:
        >>> filters = conv_filters(jax.random.key(0), size=5, channels=64, kind="impulse")
        >>> int((filters != 0).sum()), f"{(filters ** 2).sum() / 64:.3f}"
        (64, '0.333')

    Reference: Structured Initialization for Vision Transformers, appendix H.
    """
    check_key(key)
    if kind not in ("random", "impulse", "box"):
        raise unknown("kind of filter", kind, ("random", "impulse", "box"))
    size, channels = counts(size=size, channels=channels)
    shape = (size, size, channels)
    check_room(shape)
    if kind == "random":
        return jax.random.uniform(key, shape, jnp.float32, -1 / size, 1 / size)
    if kind == "box":
        return jnp.full(shape, 3**-0.5 / size, jnp.float32)
    pixel = jax.random.randint(key, (channels,), 0, size * size)
    chosen = jax.nn.one_hot(pixel, size * size, axis=0, dtype=jnp.float32)
    return chosen.reshape(shape) * 3**-0.5


def _root(covariance: Array) -> Array:
    """The symmetric root of a covariance, with negative eigenvalues clipped to 0."""
    if isinstance(covariance, jax.core.Tracer):
        values, vectors = traced_eigh(covariance.astype(jnp.float32))
        scaled = vectors * jnp.sqrt(values.clip(min=0))[None]
        return jnp.matmul(scaled, vectors.T, precision="highest")
    # On the host, in double precision: covariances are nearly singular.
    matrix: np.ndarray = np.asarray(covariance, np.float64)
    asymmetry, largest = np.abs(matrix - matrix.T).max(), np.abs(matrix).max()
    if not asymmetry <= 1e-4 * largest < np.inf:  # false for NaN as well
        raise InputError(f"the covariance {matrix.shape} is not symmetric and finite")
    spectrum, basis = np.linalg.eigh(matrix)
    return (basis * np.sqrt(spectrum.clip(min=0))) @ basis.T
