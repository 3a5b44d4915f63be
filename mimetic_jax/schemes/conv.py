"""Schemes for the filters of depthwise convolutions."""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes.base import Scheme
from mimetic_jax.schemes.block import Block, Context
from mimetic_jax.weights.checks import ANY_SIGN, check_room, number

WIDTH = Range(1e-3, 1e6)
"""Range of σ. A Gaussian of variance 1e-3 pixels is one pixel, of 1e6 constant."""


@dataclasses.dataclass(frozen=True)
class ConvMimetic(Scheme):
    """Mimetic initialization of depthwise convolutions, from a covariance. Experimental.

    Filters are f_c = Σ^½ ε_c, ε_c standard normal and independent across channels, and σ of Σ(σ),
    σ = σ₀ + v t + ½ a t², grows with relative depth t = l / (L − 1). Nothing is rescaled by fan-in,
    and biases are unchanged.

    Σ = ½ (Σ̂ + Σ̂ᵀ), Σ̂ = M ⊙ (C − ½ S), over pairs of pixels (i, j), (l, m): with the Gaussian
    Z[i, j] = exp(−((i − c)² + (j − c)²) / 2σ), c = ⌊k/2⌋, M holds Z[i, j], S holds Z[l, m] and C
    holds, at (l, m), Z shifted to (i, j) with wrap-around. Negative eigenvalues (a few percent of
    the largest) count as 0.

    Experimental: the paper has no public code, and this formula was written from memory, not
    checked against its text, so don't report its results as the paper's.

    Attributes:
        sigma: σ₀.
        velocity: v.
        acceleration: a. The defaults are (from memory too) for CIFAR and small patches; for
            ImageNet (0.15, 0.5, 0.25) at patch 14 and (0.15, 0.25, 1) at patch 7.

    Raises:
        InputError: if a field is out of its range.

    Example:
        >>> block = Block.of({"depthwise": jnp.zeros((3, 3, 2))})
        >>> ConvMimetic()(jax.random.key(0), block, Context())["depthwise"].shape
        (3, 3, 2)

    Reference: Understanding the Covariance Structure of Convolutional Filters (Trockman, Willmott
    and Kolter 2022), its closed-form construction.
    """

    depends_on_layer: ClassVar[bool] = True
    sigma: Annotated[float, WIDTH] = 0.5
    velocity: Annotated[float, ANY_SIGN] = 0.5
    acceleration: Annotated[float, ANY_SIGN] = 3.0

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"depthwise"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        size, channels = _size(block)
        depth = context.layer / max(context.num_layers - 1, 1)
        sigma = self.sigma + self.velocity * depth + self.acceleration * depth**2 / 2
        noise = jax.random.normal(key, (size**2, channels), jnp.float32)
        root = _covariance_root(size, number("sigma", sigma, WIDTH))
        filters = jnp.matmul(root, noise, precision="highest")
        return {"depthwise": filters.reshape(size, size, channels)}


@dataclasses.dataclass(frozen=True)
class ConvFilters(Scheme):
    """Simple depthwise filters of equal energy, which the paper then freezes.

    The squared norm of a channel is ⅓, in "random" on average. Of two public codes this follows the
    energy-matched one; the later one has √(1/k) in place of √⅓, equal only at k = 3.

    Attributes:
        kind: "random", uniform in ±1/k, PyTorch's default; "impulse", √⅓ at one random pixel of
            each channel; or "box", √⅓ / k everywhere.

    Raises:
        InputError: if a field is out of its range.

    Example:
        >>> block = Block.of({"depthwise": jnp.zeros((3, 3, 2))})
        >>> filters = ConvFilters("box")(jax.random.key(0), block, Context())["depthwise"]
        >>> print(f"{jnp.square(filters[..., 0]).sum():.3f}")
        0.333

    Reference: Structured Initialization for Vision Transformers, appendix H.
    """

    kind: Literal["random", "impulse", "box"] = "random"

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"depthwise"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        size, channels = _size(block)
        shape = (size, size, channels)
        if self.kind == "random":
            filters = jax.random.uniform(key, shape, jnp.float32, -1 / size, 1 / size)
        elif self.kind == "box":
            filters = jnp.full(shape, 3**-0.5 / size, jnp.float32)
        else:
            pixel = jax.random.randint(key, (channels,), 0, size * size)
            chosen = jax.nn.one_hot(pixel, size * size, axis=0, dtype=jnp.float32)
            filters = chosen.reshape(shape) * 3**-0.5
        return {"depthwise": filters}


def _size(block: Block) -> tuple[int, int]:
    """k and C of the filters [k, k, C]."""
    shape = block.shapes["depthwise"]
    if shape[0] != shape[1]:
        raise InputError(f"depthwise filters {shape} (rows, columns, channels) are not square")
    return shape[0], shape[2]


def _covariance_root(size: int, sigma: float) -> jax.Array:
    """Σ^½ [k², k²], pixels in row-major order; the symmetric root, which is unique."""
    check_room((2, size**4))  # in float64, as covariances are nearly singular
    pixels, center = np.arange(size), size // 2
    line = np.exp(-((pixels - center) ** 2) / (2 * sigma))
    shifted = line[(pixels - pixels[:, None] + center) % size]
    # Gaussians are separable: in two dimensions they are Kronecker products.
    plane = np.kron(line, line)
    halves = plane[:, None] * (np.kron(shifted, shifted) - plane / 2)
    spectrum, basis = np.linalg.eigh((halves + halves.T) / 2)
    return jnp.asarray((basis * np.sqrt(spectrum.clip(min=0))) @ basis.T, jnp.float32)
