"""MLPs: a nonzero mean in the first layer.

The paper's other control, a learnable scalar b · sum(x) added to every hidden unit, changes the
model rather than its weights, and isn't here.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.weights.checks import ANY_SIGN, NOT_NEGATIVE, check_key, number


def mean_shift(kernel: jax.Array, b: float = 0.5) -> jax.Array:
    """Return the first kernel of an MLP with one number added to all its entries.

    W₁ + b s 1 1ᵀ, s the standard deviation of the entries of W₁: b = 0.5 means half a standard
    deviation (the paper states no value, and sweeps both signs).

    After a LayerNorm of scale 1 and bias 0 the inputs of the MLP sum to zero, so at initialization
    this changes neither the forward pass nor the gradient of the residual activations, only the
    gradients of the LayerNorm's own scale and bias and the effect of weight decay. It works
    through a trainable LayerNorm, or after a BatchNorm. `mean_shift_per_input` changes the output
    from the start.

    Args:
        kernel: W₁ [D, F], for row vectors.
        b: the mean in standard deviations, of either sign.

    Returns:
        [D, F] float32; a kernel of zeros stays zero.

    Raises:
        InputError: if the kernel isn't a matrix or b isn't finite.

    Example:
        >>> kernel = jax.random.normal(jax.random.key(0), (192, 768))
        >>> print(f"{(mean_shift(kernel, b=0.5) - kernel).mean() / kernel.std():.3f}")
        0.500

    Reference: Mimetic Initialization of MLPs, eq. 2.
    """
    _check_matrix(kernel)
    b = number("b", b, ANY_SIGN)
    kernel = jnp.asarray(kernel, jnp.float32)
    return kernel + b * kernel.std()


def mean_shift_per_input(key: jax.Array, kernel: jax.Array, sigma: float = 0.5) -> jax.Array:
    """Draw the first kernel of an MLP with one random number added per input, equal for all units.

    W₁ + b 1ᵀ, b_n ~ N(0, (σ s)²), s the standard deviation of the entries of W₁: σ = 0.5 means
    half a standard deviation. The mean over all inputs stays near zero; unlike `mean_shift` this
    also changes the output after a LayerNorm.

    Args:
        key: a `jax.random` key; concrete or traced.
        kernel: W₁ [D, F], for row vectors.
        sigma: σ ≥ 0, the standard deviation of the numbers in units of the kernel's.

    Returns:
        [D, F] float32; a kernel of zeros stays zero.

    Raises:
        InputError: if the kernel isn't a matrix or σ isn't a finite number ≥ 0.

    Example:
        >>> kernel = jax.random.normal(jax.random.key(0), (192, 768))
        >>> shift = mean_shift_per_input(jax.random.key(1), kernel) - kernel
        >>> bool(jnp.allclose(shift, shift[:, :1], atol=1e-6)), f"{shift.std():.1f}"
        (True, '0.5')

    Reference: Mimetic Initialization of MLPs, eq. 1.
    """
    check_key(key)
    _check_matrix(kernel)
    sigma = number("sigma", sigma, NOT_NEGATIVE)
    kernel = jnp.asarray(kernel, jnp.float32)
    shift = jax.random.normal(key, (kernel.shape[0], 1), jnp.float32)
    return kernel + sigma * kernel.std() * shift


def _check_matrix(kernel: jax.Array) -> None:
    if kernel.ndim != 2:
        raise InputError(f"a kernel of shape {kernel.shape} is not [D, F]")
