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


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: weights.patch_covariance(IMAGES, 10), "no patch of 10 pixels fits images of"),
        (lambda: weights.patch_covariance(IMAGES * np.nan, 2), "not finite numbers"),
        (lambda: weights.natural_covariance(4, 2), "3 channels or 1, not 2: give a covariance"),
        (lambda: weights.whitened(KEY, np.ones((2, 3)), 4), r"\(2, 3\) is not a square"),
        (lambda: weights.whitened(KEY, np.zeros((2, 2)), 4), "all patches are equal"),
        (lambda: weights.whitened(KEY, np.eye(2), 4, share=0), "share 0"),
    ],
)
def test_input_that_can_not_work(call, words):
    with pytest.raises(InputError, match=words):
        call()
