"""Kernels that are bases: orthonormal, cosines, sines; and the one nearest to a given kernel."""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.weights.checks import check_key, check_room, counts
from mimetic_jax.weights.factor import haar_basis

Variance = Literal["glorot", "he"]

# Newton-Schulz multiplies a small singular value by 3/2 per step: enough for 1e-4 of the norm.
_POLAR_STEPS = 32


def semi_orthogonal(key: jax.Array, fan_in: int, fan_out: int, num_heads: int = 1) -> jax.Array:
    """A random matrix whose singular values are all 1, as a whole or in each head.

    WᵀW = I if fan_out ≤ fan_in, else W Wᵀ = I; Haar-distributed. With several heads this holds for
    the fan_out / num_heads columns of each head, which are drawn independently.

    Args:
        key: a `jax.random` key; concrete or traced.
        fan_in: rows.
        fan_out: columns; all heads together.
        num_heads: H, a divisor of fan_out.

    Returns:
        [fan_in, fan_out] float32.

    Raises:
        InputError: if a size isn't positive, or the heads don't divide the columns.

    Example:
        >>> query = semi_orthogonal(jax.random.key(0), 12, 8)
        >>> bool(jnp.allclose(query.T @ query, jnp.eye(8), atol=1e-5))
        True

    Reference: Exact Solutions to the Nonlinear Dynamics of Learning in Deep Linear Neural Networks
    (Saxe, McClelland and Ganguli 2014).
    """
    check_key(key)
    fan_in, fan_out = kernel_sizes(fan_in, fan_out)
    (num_heads,) = counts(num_heads=num_heads)
    if fan_out % num_heads:
        raise InputError(f"num_heads {num_heads} does not divide the {fan_out} columns")
    width = fan_out // num_heads
    tall = (num_heads, max(fan_in, width), min(fan_in, width))
    basis_HxDxK = jnp.asarray(haar_basis(jax.random.normal(key, tall, jnp.float32)))
    if width > fan_in:
        basis_HxDxK = basis_HxDxK.mT
    return basis_HxDxK.swapaxes(0, 1).reshape(fan_in, fan_out)


def dct(fan_in: int, fan_out: int) -> jax.Array:
    """The orthonormal discrete cosine transform, lowest frequencies first.

    W[i, k] = c_k cos(π (2i + 1) k / 2n), c_0 = √(1/n) and c_k = √(2/n), n = fan_in: column k is
    coefficient k of DCT-II of the input. If fan_out > fan_in, the transpose of the kernel for
    swapped sizes. Nothing is random.

    Args:
        fan_in: rows.
        fan_out: columns; all heads together.

    Returns:
        [fan_in, fan_out] float32 with singular values 1.

    Raises:
        InputError: if a size isn't positive.

    Example:
        >>> jnp.abs(dct(2, 2)).round(4)
        Array([[0.7071, 0.7071],
               [0.7071, 0.7071]], dtype=float32)

    Reference: Discrete Cosine Transform-Based Decorrelated Attention for Vision Transformers (Pan
    et al. 2026), as in its released code.
    """
    import scipy.fft  # takes 0.1 s: only where it is needed

    fan_in, fan_out = kernel_sizes(fan_in, fan_out)
    if fan_out > fan_in:
        return dct(fan_out, fan_in).T
    check_room((2, fan_in, fan_in), (2, fan_in, fan_in))  # both matrices in float64
    return jnp.asarray(scipy.fft.dct(np.eye(fan_in), norm="ortho")[:, :fan_out], jnp.float32)


def sinusoidal(fan_in: int, fan_out: int, variance: Variance = "glorot") -> jax.Array:
    """A deterministic kernel whose columns are sines, one frequency per unit.

    W[i, j] = a sin((j + 1) (2π i / fan_in + 2π / fan_out)), the amplitude a chosen for the
    variance. The weights of a unit sum to zero, unless fan_in divides its frequency j + 1: those
    are constant.

    A square kernel of n = fan_in is symmetric, and with the "glorot" variance W W is about
    n / (n − 2) · (I − R), R the permutation i → n − 2 − i. Units of frequencies f and n − f are
    each other's negatives, so that its rank is below n / 2 (95 for 192), and the last unit is zero.

    Args:
        fan_in: rows.
        fan_out: columns; all heads together.
        variance: of the entries: "glorot", 2 / (fan_in + fan_out), as in the released code when the
            paper appeared; "he", 2 / fan_in, as in that code since December 2025.

    Returns:
        [fan_in, fan_out] float32.

    Raises:
        InputError: if a size isn't positive, the kernel would be zero, or the variance is unknown.

    Example:
        >>> kernel = sinusoidal(192, 64)
        >>> print(f"{jnp.abs(kernel.sum(axis=0)).max():.3f}")
        0.000

    Reference: Sinusoidal Initialization, Time for a New Start (Fernández-Hernández et al.,
    NeurIPS 2025), as in its released code (jmiravet/Sinusoidal-Initialization).
    """
    fan_in, fan_out = kernel_sizes(fan_in, fan_out)
    if variance not in ("glorot", "he"):
        raise unknown("variance", variance, ("glorot", "he"))
    frequency = np.arange(1, fan_out + 1)
    # Whole turns are dropped before the sine, where float64 would lose digits to them.
    turns = np.outer(np.arange(fan_in), frequency) % fan_in / fan_in + frequency / fan_out
    waves = np.sin(2 * np.pi * (turns % 1))
    if np.abs(waves).max() < 1e-9:
        raise InputError(f"a sinusoidal kernel of {fan_in} x {fan_out} is zero")
    target = 2 / (fan_in + fan_out) if variance == "glorot" else 2 / fan_in
    return jnp.asarray(waves * math.sqrt(target / waves.var(ddof=1)), jnp.float32)


def polar(kernels: jax.Array) -> jax.Array:
    """The orthogonal factor of each matrix's polar decomposition: its singular values become 1.

    W = U Σ Vᵀ gives U Vᵀ, the semi-orthogonal matrix nearest to W, by Newton-Schulz iterations
    X ← ½ X (3 I − XᵀX), which need matrix products alone. A zero matrix stays zero, and singular
    values below 1e-4 of W's Frobenius norm end between 0 and 1.

    Args:
        kernels: matrices [..., M, N]; concrete or traced.

    Returns:
        The factors, of the same shape, float32.

    Example:
        >>> polar(jnp.array([[3., 0.], [0., -2.]])).round(4) + 0
        Array([[ 1.,  0.],
               [ 0., -1.]], dtype=float32)

    Reference: Functions of Matrices (Higham 2008), chapter 8.
    """
    if kernels.shape[-1] > kernels.shape[-2]:
        return polar(kernels.mT).mT
    return _newton_schulz(kernels)


@jax.jit
def _newton_schulz(kernels: jax.Array) -> jax.Array:
    kernels = jnp.asarray(kernels, jnp.float32)
    norm = jnp.linalg.norm(kernels, axis=(-2, -1), keepdims=True)
    with jax.default_matmul_precision("highest"):
        start = kernels / norm.clip(min=np.finfo(np.float32).tiny)
        return jax.lax.fori_loop(
            0, _POLAR_STEPS, lambda _, x: 1.5 * x - 0.5 * x @ (x.mT @ x), start
        )


def kernel_sizes(fan_in: int, fan_out: int) -> tuple[int, int]:
    """Rows and columns of a kernel, after a check that they are positive and fit into memory."""
    fan_in, fan_out = counts(fan_in=fan_in, fan_out=fan_out)
    check_room((fan_in, fan_out))
    return fan_in, fan_out
