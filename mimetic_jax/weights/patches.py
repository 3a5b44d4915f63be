"""The first layer of vision models: patches of images, whitened as trained models do."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range, shown
from mimetic_jax.host.cores import limited_blas
from mimetic_jax.weights.checks import check_key, check_room, counts, number
from mimetic_jax.weights.factor import haar_basis, own_axes

SHARE = Range(0, 1, above=True)

_MOST = 2**14
"""Numbers of a patch above which their covariance takes more than 2 GiB, and hours to decompose."""

_LOWEST = 0.75
"""f₀ of the spectrum 1/(f₀² + f²), in half waves per patch, by the energy at low frequencies of the
patch embedding of DINOv2's ViT-S."""

_TILT = 1e-6
"""By what share the variance falls per half wave of f_y, so that no two frequencies are equal."""

COLORS = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])
_SHARES = (0.912, 0.071, 0.016)
"""Luminance, red - blue and green - others, and their shares of the variance of 5,000 images of
CIFAR-10, each channel normalized."""


def cosines(size: int) -> np.ndarray:
    """Return the orthonormal basis of cosines (DCT-II), a column per frequency in half waves."""
    pixels = np.arange(size)
    waves = np.cos(np.pi * (pixels[:, None] + 0.5) * pixels / size)
    return waves / np.linalg.norm(waves, axis=0)


def patch_covariance(images: Any, patch: int) -> np.ndarray:
    """Return the covariance of the patches of images, Σ [P, P] in float64, P = p² C.

    Args:
        images: [B, h, w, C] as the model gets them, normalized: sides that p doesn't divide lose
            their last pixels.
        patch: p, the side of a patch in pixels.

    Returns:
        Σ, its axes the rows, columns and channels of a patch in that order.

    Raises:
        InputError: if no patch fits, or values aren't finite.

    Example:
        >>> images = np.random.default_rng(0).normal(size=(100, 8, 8, 3))
        >>> patch_covariance(images, 4).shape
        (48, 48)
    """
    (patch,) = counts(patch=patch)
    images = _real("images", images)
    if images.ndim != 4:
        raise InputError(f"images of shape {images.shape} are not [B, h, w, C]; gray ones have C 1")
    rows, columns = (side // patch for side in images.shape[1:3])
    if rows * columns * images.shape[0] * images.shape[3] == 0:
        if images.shape[1] in (1, 3) and min(images.shape[2:]) >= patch:
            raise InputError(
                f"images of shape {images.shape} look channel-first. Pass [batch, height, width, "
                "channels]: images.transpose(0, 2, 3, 1)"
            )
        raise InputError(
            f"images must have at least one patch of {patch} pixels; got shape {images.shape}"
        )
    size = _numbers(patch, images.shape[-1])
    if not np.isfinite(images).all():
        raise InputError("images have values that are not finite numbers")
    cut = images[:, : rows * patch, : columns * patch]
    patches = cut.reshape(len(cut), rows, patch, columns, patch, -1).swapaxes(2, 3)
    patches = patches.reshape(-1, size)
    if len(patches) == 1:
        raise InputError(f"images of shape {images.shape} hold one patch, which has no covariance")
    with limited_blas(), np.errstate(over="ignore", invalid="ignore"):
        covariance = np.cov(patches, rowvar=False).reshape(size, size)
    if not np.isfinite(covariance).all():
        raise InputError(f"images have values of up to {np.abs(images).max():.3g}: normalize them")
    return covariance


def natural_covariance(patch: int, channels: int = 3) -> np.ndarray:
    """Return the covariance of patches of natural images, without images: Σ [P, P], P = p² C.

    Cosines of the frequency f = (f_y, f_x), in half waves per patch, have the variance
    s_c (1 − 10⁻⁶ f_y) / (f₀² + |f|²), f₀ = 0.75; s are the shares of luminance and two opponent
    colors, and the small factor orders frequencies of one radius.

    Args:
        patch: p, the side of a patch in pixels.
        channels: C, 3 or 1.

    Returns:
        Σ as of `patch_covariance`, with the mean 1 on its diagonal.

    Example:
        >>> print(f"{natural_covariance(4).trace():.3f}")
        48.000

    Reference: images' power falls as 1/f² (Field 1987); shares and f₀ are measured here.
    """
    patch, channels = counts(patch=patch, channels=channels)
    if channels not in (1, 3):
        raise InputError(
            f"the built-in spectrum of natural images has 1 or 3 channels; got {channels}. Pass "
            "covariance=weights.patch_covariance(images, patch)."
        )
    size = _numbers(patch, channels)
    pixels, waves = np.arange(patch), cosines(patch)
    variance = 1 / (_LOWEST**2 + pixels[:, None] ** 2 + pixels**2)
    # Frequencies of one radius would have equal variances, and if only some of them fit into the
    # embedding's width, rounding would choose which.
    variance *= 1 - _TILT * pixels[:, None]
    images = np.einsum("yu,xv,uv,zu,wv->yxzw", waves, waves, variance, waves, waves, optimize=True)
    colors = COLORS.T @ np.diag(_SHARES) @ COLORS if channels == 3 else np.eye(1)
    joined = np.einsum("yxzw,bc->yxbzwc", images, colors).reshape(size, size)
    return joined * (size / joined.trace())


def whitened(key: jax.Array, covariance: np.ndarray, dim: int, *, share: float = 0.2) -> jax.Array:
    """Draw a patch embedding that whitens a share of the principal components of patches, or all.

    W = V diag(g) Q with Σ = V diag(λ) Vᵀ and g_i = λ_i^-½ / (1 + (λ_c / λ_i)²). In the outputs the
    component i has the variance (1 + (λ_c / λ_i)²)⁻²: 1 if λ_i is far above λ_c, ¼ at λ_c, next to
    none far below, where patches are mostly noise. Q [P, D] is a random semi-orthogonal matrix; if
    D < P the D largest components are embedded.

    Args:
        key: a `jax.random` key, of Q; concrete or traced.
        covariance: Σ [P, P], of `patch_covariance` or `natural_covariance`; concrete.
        dim: D.
        share: of all P components, those that vary at least as much as λ_c; 1 whitens all, with
            λ_c = 0.

    Returns:
        W [P, D] float32. With a share of 1, outputs x W of the patches x have the covariance I if
        D ≤ P.

    Raises:
        InputError: if Σ is not the covariance of anything: it isn't symmetric, or has a negative
            variance, no finite one, or none at all.

    Example:
        >>> kernel = whitened(jax.random.key(0), natural_covariance(4), 16, share=1)
        >>> covariance = kernel.T @ natural_covariance(4) @ kernel
        >>> bool(jnp.allclose(covariance, jnp.eye(16), atol=1e-3))
        True

    Reference: What does the retina know about natural scenes? (Atick and Redlich 1992). Trained
    vision transformers do it: docs/trained.md.
    """
    check_key(key)
    (dim,) = counts(dim=dim)
    share = number("share", share, SHARE)
    covariance = square(covariance)
    check_room((2, *covariance.shape), (3, dim, min(dim, len(covariance))))
    if not np.isfinite(covariance).all() or not np.allclose(covariance, covariance.T):
        raise InputError("the covariance is not a symmetric matrix of finite numbers")
    with limited_blas():
        variances, vectors = np.linalg.eigh(covariance)
    if not variances.any():
        raise InputError("the covariance is zero: all patches are equal")
    largest = variances[-1]
    if not 1e-30 < largest < 1e30 or variances[0] < -1e-6 * largest:
        raise InputError(
            f"the covariance has variances from {variances[0]:.3g} to {largest:.3g}; pass one of "
            "weights.patch_covariance, of normalized images"
        )
    limit = 0 if share == 1 else variances[-math.ceil(share * len(variances))].clip(min=0)
    variances, vectors = variances[::-1][:dim], vectors[:, ::-1][:, :dim]
    known = variances > 1e-10 * largest
    safe = np.where(known, variances, 1)
    gains = np.where(known, safe**-0.5 / (1 + (limit / safe) ** 2), 0)
    rank, kernel_PxR = len(gains), (vectors * gains) @ own_axes(vectors)
    turn_DxR = jnp.asarray(haar_basis(jax.random.normal(key, (1, dim, rank), jnp.float32)))[0]
    with jax.default_matmul_precision("highest"):
        return jnp.asarray(kernel_PxR, jnp.float32) @ turn_DxR.T


def square(covariance: Any) -> np.ndarray:
    """Return a covariance in float64, after a check of its shape [P, P]."""
    covariance = _real("the covariance", covariance)
    if covariance.ndim != 2 or not 0 < covariance.shape[0] == covariance.shape[1]:
        raise InputError(f"a covariance of shape {covariance.shape} is not a square [P, P]")
    return covariance


def _real(name: str, values: Any) -> np.ndarray:
    """An array of real numbers in float64."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "OSUc":
            return array.astype(np.float64)
    except (TypeError, ValueError, RuntimeError):  # a traced array, a deleted one
        pass
    raise InputError(
        f"{name}: {shown(values)} is not an array of real numbers, known before tracing"
    )


def _numbers(patch: int, channels: int) -> int:
    """The numbers of a patch, P, after a check that arrays [P, P] are of a size to work with."""
    size = patch * patch * channels
    if size > _MOST:
        raise InputError(
            f"patches of {patch} x {patch} x {channels} have {size:,} numbers, and a covariance is "
            f"of at most {_MOST:,}"
        )
    return size
