"""Mixup and CutMix against their definitions in NumPy, float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from mimetic_jax.data.augment.mixing import Mixing, mix
from tests.data.made import rectangle
from tests.typical import typical

KEY = jax.random.key(2)
BATCH, HEIGHT, WIDTH, CLASSES, COUNT = 6, 10, 14, 7, 1500
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(BATCH, HEIGHT, WIDTH, 3)).astype(np.float32)
LABELS = np.array([0, 1, 2, 3, 4, 5])


@functools.partial(jax.jit, static_argnums=(0, 1))
def mixed(mixing: Mixing, smoothing: float, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    images, labels = jnp.asarray(IMAGES), jnp.asarray(LABELS)
    return jax.vmap(lambda key: mix(mixing, key, images, labels, CLASSES, smoothing))(keys)


def draws(mixing: Mixing, smoothing: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    images, targets = mixed(mixing, smoothing, jax.random.split(KEY, COUNT))
    assert targets.dtype == jnp.float32
    assert targets.shape == (COUNT, BATCH, CLASSES)
    np.testing.assert_allclose(targets.sum(axis=-1), 1, atol=1e-6)
    return np.asarray(images, np.float64), np.asarray(targets, np.float64)


def shares(targets: np.ndarray) -> np.ndarray:
    """λ of each batch, from the targets, where labels differ and nothing is smoothed."""
    found = targets[:, np.arange(BATCH), LABELS]
    np.testing.assert_allclose(found, np.broadcast_to(found[:, :1], found.shape), atol=1e-6)
    return found[:, 0]


def test_nothing_is_mixed_by_default():
    images, targets = draws(Mixing())
    np.testing.assert_array_equal(images[0], IMAGES)
    np.testing.assert_array_equal(targets[0], np.eye(CLASSES)[LABELS])


@typical("alpha", [0.2], slow=[2.0])
def test_mixup_is_a_weighted_sum_by_a_beta_number(alpha):
    images, targets = draws(Mixing(mixup=alpha))
    share = shares(targets)
    weight = share[:, None, None, None, None]
    np.testing.assert_allclose(images, weight * IMAGES + (1 - weight) * IMAGES[::-1], atol=1e-5)
    law = scipy.stats.beta(alpha, alpha)
    assert scipy.stats.kstest(share, law.cdf).statistic < 0.04


def test_cutmix_pastes_a_box_and_keeps_its_true_share():
    images, targets = draws(Mixing(cutmix=1.0))
    share = shares(targets)
    pasted = images == IMAGES[::-1]
    assert np.all(pasted | (images == IMAGES))
    inside = pasted.all(axis=(1, 4))
    places = []
    for box, one in zip(inside, share, strict=True):
        assert 1 - box.sum() / (HEIGHT * WIDTH) == pytest.approx(one, abs=1e-6)
        if box.any():
            top, left, height, width = rectangle(box)
            places.append((top + height / 2, left + width / 2))
    # Centers all over the image.
    assert np.ptp(places, axis=0) == pytest.approx([HEIGHT, WIDTH], abs=3)

    # The same law with NumPy: timm/data/mixup.py, rand_bbox and its correction.
    rng = np.random.default_rng(1)
    ratio = np.sqrt(1 - rng.beta(1, 1, COUNT))
    area = np.ones(COUNT)
    for size in (HEIGHT, WIDTH):
        side, center = (size * ratio).astype(int), rng.integers(0, size, COUNT)
        area *= np.clip(center + side // 2, 0, size) - np.clip(center - side // 2, 0, size)
    pixels = np.rint((1 - share) * HEIGHT * WIDTH)
    assert scipy.stats.ks_2samp(pixels, area).statistic < 0.06


def test_either_way_and_smoothing():
    mixing = Mixing(mixup=0.8, cutmix=1.0)
    images, smooth = draws(mixing, smoothing=0.1)
    own, other = images == IMAGES, images == IMAGES[::-1]
    untouched = own.all(axis=(1, 2, 3, 4))
    cut = (own | other).all(axis=(1, 2, 3, 4)) & ~untouched
    assert untouched.mean() < 0.03  # a few boxes are empty
    assert abs(cut.mean() - 0.5) < 0.06

    # timm/data/mixup.py: off = s / C, on = 1 - s + off, then λ of one and 1 - λ of the other.
    off = 0.1 / CLASSES
    hot = np.full((BATCH, CLASSES), off)
    hot[np.arange(BATCH), LABELS] = 1 - 0.1 + off
    share = ((smooth[:, 0, LABELS[0]] - off) / (1 - 0.1))[:, None, None]
    np.testing.assert_allclose(smooth, share * hot + (1 - share) * hot[::-1], atol=1e-6)
