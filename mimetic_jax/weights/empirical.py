"""Both kernels of an MLP, drawn with the covariance that a population of networks has.

Hidden units are exchangeable in any MLP, and channels in a network whose layers all start from
independent draws. The covariance of the entries of W₁ and W₂ᵀ, both [D, F], then has 12 numbers:
one for each pair of kernels (`PAIRS`), and for what two entries share (`SHARED`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.errors import InputError
from mimetic_jax.weights.checks import check_key, check_room, counts

PAIRS = ("W1 W1", "W2 W2", "W1 W2")
"""Kernels of the two entries; W₂ is transposed, so that both are indexed by channel and unit."""

SHARED = ("both", "unit", "channel", "neither")
"""What the two entries share: channel and hidden unit, the hidden unit alone, the channel (the
input of W₁, the output of W₂) alone, or neither."""


def exchangeable_mlp(
    key: jax.Array, dim: int, hidden: int, mean: np.ndarray, covariance: np.ndarray
) -> tuple[jax.Array, jax.Array]:
    """Kernels of an MLP, jointly normal, with exchangeable channels and hidden units.

    With c the covariance of a pair of kernels, [W₁, W₂ᵀ] is the sum of its means and of four
    independent terms: one per kernel, of covariance c(neither); one per channel, c(channel) −
    c(neither); one per hidden unit, c(unit) − c(neither); one per entry, the rest. Terms of the two
    kernels are correlated by the pair "W1 W2". Thus the numbers don't depend on D and F.

    The draw scales four orthogonal parts of normal noise, which give the same distribution: the
    grand mean, the means of channels, the means of units, and the rest. It is exact too where
    a term has a negative variance, as in a kernel whose columns sum to less than independent
    entries would. Each part's 2×2 covariance is projected on the positive semidefinite cone: a
    change for numbers that no kernels of this size can have, whether by errors of estimation or
    because they come from narrower kernels.

    Args:
        key: a `jax.random` key; concrete or traced.
        dim: D.
        hidden: F.
        mean: of the entries of W₁ and of W₂, [2].
        covariance: [3, 4], in the order of `PAIRS` and `SHARED`; concrete.

    Returns:
        W₁ [D, F] and W₂ [F, D], float32.

    Raises:
        InputError: if a size isn't positive, or an array has another shape or isn't finite.

    Example:
        >>> covariance = np.array([[1.25, 0, 0.25, 0], [1, 0, 0, 0], [-0.5, 0, 0, 0]])
        >>> first, second = exchangeable_mlp(jax.random.key(0), 64, 256, np.zeros(2), covariance)
        >>> f"{(first * second.T).mean():.1f} {first.mean(axis=1).std():.1f}"
        '-0.5 0.5'

    Reference: ours, of covariances as in Mimetic Initialization of MLPs, figure 1.
    """
    check_key(key)
    dim, hidden = counts(dim=dim, hidden=hidden)
    check_room((2, dim, hidden))
    mean, covariance = np.asarray(mean, np.float64), np.asarray(covariance, np.float64)
    for name, array, shape in (("mean", mean, (2,)), ("covariance", covariance, (3, 4))):
        if array.shape != shape or not np.isfinite(array).all():
            raise InputError(f"{name} {array.tolist()} is not an array {shape} of finite numbers")
    noise = jax.random.normal(key, (2, dim, hidden), jnp.float32)
    roots = np.stack([_root(variance) for variance in _variances(covariance, dim, hidden)])
    first, second = _mixed(noise, mean.astype(np.float32), roots.astype(np.float32))
    return first, second.T


@jax.jit  # one compilation for many small operations
def _mixed(noise: jax.Array, mean: jax.Array, roots: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Means plus the parts of the noise [2, D, F], each mixed by a 2×2 matrix."""
    grand = noise.mean(axis=(1, 2), keepdims=True)
    channels = noise.mean(axis=2, keepdims=True) - grand
    units = noise.mean(axis=1, keepdims=True) - grand
    first, second = mean[0], mean[1]
    parts = (noise - grand - channels - units, units, channels, grand)
    for part, root in zip(parts, roots, strict=True):
        # Written out, since a product of matrices would lose precision on a TPU.
        first = first + (root[0, 0] * part[0] + root[0, 1] * part[1])
        second = second + (root[1, 0] * part[0] + root[1, 1] * part[1])
    return first, second


def _variances(covariance: np.ndarray, dim: int, hidden: int) -> np.ndarray:
    """The 2×2 covariance of each part of the noise, [4, 2, 2]: entries, units, channels, grand."""
    both, unit, channel, neither = covariance[[[0, 2], [2, 1]]].transpose(2, 0, 1)
    entries = both - unit - channel + neither
    units, channels = dim * (unit - neither), hidden * (channel - neither)
    grand = units + channels + dim * hidden * neither
    return entries + np.stack([np.zeros((2, 2)), units, channels, grand])


def _root(variance: np.ndarray) -> np.ndarray:
    """The symmetric root of the nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(variance)
    return (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
