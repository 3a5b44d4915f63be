"""Whitened patches, against NumPy."""

import jax
import numpy as np
import pytest

from mimetic_jax import InputError, weights

KEY = jax.random.key(0)
IMAGES = np.random.default_rng(0).normal(size=(300, 9, 8, 3)).cumsum(axis=1).cumsum(axis=2)


def patches(images: np.ndarray, side: int) -> np.ndarray:
    """[patches, p² C], by a loop; what is left of a side is cut off."""
    return np.array(
        [
            image[y : y + side, x : x + side].ravel()
            for image in images
            for y in range(0, image.shape[0] - side + 1, side)
            for x in range(0, image.shape[1] - side + 1, side)
        ]
    )


@pytest.mark.parametrize("dim", [12, 27, 64])
def test_whitened_patches_have_the_covariance_of_noise(dim):
    found = weights.patch_covariance(IMAGES, 3)
    every = patches(IMAGES, 3)
    np.testing.assert_allclose(found, np.cov(every, rowvar=False), rtol=1e-9)
    kernel = np.asarray(weights.whitened(KEY, found, dim, share=1), np.float64)
    outputs = np.cov(every @ kernel, rowvar=False)
    values = np.linalg.eigvalsh(outputs)[::-1]
    np.testing.assert_allclose(values[: min(dim, 27)], 1, atol=1e-3)
    np.testing.assert_allclose(values[27:], 0, atol=1e-3)


def test_below_the_cutoff_details_are_left_out():
    variances = np.array([100.0, 10.0, 1.0, 0.01])
    kernel = weights.whitened(KEY, np.diag(variances), 4, share=0.75)
    gains = np.linalg.norm(np.asarray(kernel), axis=1)
    np.testing.assert_allclose(gains, variances**-0.5 / (1 + variances**-2), rtol=1e-4)
    singular = weights.whitened(KEY, np.diag([4.0, 0.0]), 2, share=1)
    np.testing.assert_allclose(np.linalg.norm(singular, axis=1), [0.5, 0], atol=1e-6)


def test_energy_by_frequency_is_that_of_a_trained_model():
    """DINOv2's ViT-S: luminance by radial frequency, relative to the mean (docs/trained.md)."""
    trained = [0.07, 0.17, 0.51, 1.09, 1.95, 3.37, 4.29, 5.07, 4.75, 4.04, 2.84, 2.35, 1.85, 1.49]
    kernel = weights.whitened(KEY, weights.natural_covariance(14), 588, share=0.15)
    pixels = np.arange(14)
    waves = np.cos(np.pi * (pixels[:, None] + 0.5) * pixels / 14)
    waves /= np.linalg.norm(waves, axis=0)
    luminance = np.asarray(kernel).reshape(14, 14, 3, -1).sum(axis=2)
    energy = (np.einsum("yxd,yu,xv->uvd", luminance, waves, waves) ** 2).sum(axis=2)
    radius = np.hypot(pixels[:, None], pixels)
    found = [energy[(radius >= r) & (radius < r + 1)].mean() for r in pixels]
    cosine = np.dot(found, trained) / np.linalg.norm(found) / np.linalg.norm(trained)
    assert cosine > 0.99


@pytest.mark.parametrize(("patch", "dim"), [(14, 64), (14, 384)])
def test_rounding_does_not_choose_among_components(patch, dim):
    """Whose variances are nearly equal where the width ends: without a tilt they are equal."""
    covariance = weights.natural_covariance(patch)
    error = np.random.default_rng(1).normal(size=covariance.shape) * 1e-15
    one, other = (
        weights.whitened(KEY, sigma, dim) for sigma in (covariance, covariance + error + error.T)
    )
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_gray_pixel_has_a_variance():
    found = weights.patch_covariance(IMAGES[..., :1], 1)
    np.testing.assert_allclose(found, [[np.var(IMAGES[..., 0], ddof=1)]])


GRAY = IMAGES[..., 0]


@pytest.mark.parametrize(
    ("images", "patch", "words"),
    [
        (IMAGES, 10, r"at least one patch of 10 pixels; got shape \(300, 9, 8, 3\)"),
        (IMAGES[:0], 2, r"at least one patch of 2 pixels; got shape \(0, 9, 8, 3\)"),
        (IMAGES[..., :0], 2, r"got shape \(300, 9, 8, 0\)"),
        (IMAGES[:1], 8, r"shape \(1, 9, 8, 3\) hold one patch"),
        *((x, 2, r"are not \[B, h, w, C\]; gray ones have C 1") for x in (GRAY, GRAY[0], 3.0)),
        (IMAGES * np.nan, 2, "not finite numbers"),
        (IMAGES * 1e200, 2, "values of up to .*e\\+20.: normalize them"),
        *(
            (x, 2, "is not an array of real numbers")
            for x in (None, "a", [[1], [1, 2]], IMAGES * 1j, jax.ShapeDtypeStruct((4, 4), "f4"))
        ),
        (np.broadcast_to(np.uint8(0), (1, 2048, 2048, 3)), 1024, "1024 x 1024 x 3 have 3,145,728"),
    ],
)
def test_images_that_have_no_covariance(images, patch, words):
    with pytest.raises(InputError, match=words):
        weights.patch_covariance(images, patch)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: weights.natural_covariance(4, 2), "has 1 or 3 channels; got 2. Pass covariance"),
        (lambda: weights.natural_covariance(10**9), "and a covariance is of at most 16,384"),
        (lambda: weights.whitened(KEY, np.ones((2, 3)), 4), r"\(2, 3\) is not a square"),
        (lambda: weights.whitened(KEY, np.float64(2), 4), r"\(\) is not a square"),
        (lambda: weights.whitened(KEY, np.zeros((0, 0)), 4), r"\(0, 0\) is not a square"),
        (lambda: weights.whitened(KEY, np.zeros((2, 2)), 4), "all patches are equal"),
        (lambda: weights.whitened(KEY, np.diag([1, -1]), 4), "variances from -1 to 1; pass one"),
        (lambda: weights.whitened(KEY, 1e300 * np.eye(2), 4), "to 1e\\+300; pass one"),
        (lambda: weights.whitened(KEY, 1j * np.eye(2), 4), "not an array of real numbers"),
        (
            lambda: weights.whitened(KEY, np.eye(2), 4, share=0),
            r"share must be a number in \(0, 1\]; got 0",
        ),
        # XLA would end the process.
        (lambda: weights.whitened(KEY, np.eye(9), 2**40), "x 1099511627776 x 9 need .* of memory"),
    ],
)
def test_input_that_can_not_work(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_a_traced_covariance_is_refused():
    with pytest.raises(InputError, match="known before tracing"):
        jax.jit(lambda covariance: weights.whitened(KEY, covariance, 2))(np.eye(2))
