"""Mixup and CutMix against their definitions in NumPy, float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from mimetic_jax.data.mixing import Mixing, mix
from mimetic_jax.errors import InputError

KEY = jax.random.key(2)
BATCH, HEIGHT, WIDTH, CLASSES = 6, 10, 14, 7
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(BATCH, HEIGHT, WIDTH, 3)).astype(np.float32)
LABELS = np.array([0, 1, 2, 3, 4, 5])


@functools.partial(jax.jit, static_argnums=(0, 2))
def mixed(mixing: Mixing, keys: jax.Array, smoothing: float = 0.0) -> tuple[jax.Array, jax.Array]:
    def one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return mix(mixing, key, jnp.asarray(IMAGES), jnp.asarray(LABELS), CLASSES, smoothing)

    return jax.vmap(one)(keys)


def draws(mixing: Mixing, count: int, smoothing: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    images, targets = mixed(mixing, jax.random.split(KEY, count), smoothing)
    assert targets.dtype == jnp.float32
    assert targets.shape == (count, BATCH, CLASSES)
    return np.asarray(images, np.float64), np.asarray(targets, np.float64)


def shares(targets: np.ndarray) -> np.ndarray:
    """λ of each batch, from the targets, where labels differ and nothing is smoothed."""
    found = targets[:, np.arange(BATCH), LABELS]
    np.testing.assert_allclose(found, np.broadcast_to(found[:, :1], found.shape), atol=1e-6)
    return found[:, 0]


def test_nothing_is_mixed_by_default() -> None:
    images, targets = draws(Mixing(), 2)
    np.testing.assert_array_equal(images[0], IMAGES)
    np.testing.assert_array_equal(targets[0], np.eye(CLASSES)[LABELS])


@pytest.mark.parametrize("mixing", [Mixing(), Mixing(mixup=0.8), Mixing(cutmix=1.0)])
def test_targets_are_timms(mixing: Mixing) -> None:
    """timm/data/mixup.py: off = s / C, on = 1 - s + off, then λ of one and 1 - λ of the other."""
    _, plain = draws(mixing, 50)
    _, smooth = draws(mixing, 50, smoothing=0.1)
    share = shares(plain)[:, None, None]
    off = 0.1 / CLASSES
    hot = np.full((BATCH, CLASSES), off)
    hot[np.arange(BATCH), LABELS] = 1 - 0.1 + off
    np.testing.assert_allclose(smooth, share * hot + (1 - share) * hot[::-1], atol=1e-6)
    np.testing.assert_allclose(smooth.sum(axis=-1), 1, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.2, 0.8, 2.0])
def test_mixup_is_a_weighted_sum_by_a_beta_number(alpha: float) -> None:
    images, targets = draws(Mixing(mixup=alpha), 2000)
    share = shares(targets)
    weight = share[:, None, None, None, None]
    np.testing.assert_allclose(images, weight * IMAGES + (1 - weight) * IMAGES[::-1], atol=1e-5)
    law = scipy.stats.beta(alpha, alpha)
    assert scipy.stats.kstest(share, law.cdf).statistic < 0.04


def test_cutmix_pastes_a_box_and_keeps_its_true_share() -> None:
    images, targets = draws(Mixing(cutmix=1.0), 1500)
    share = shares(targets)
    pasted = images == IMAGES[::-1]
    assert np.all(pasted | (images == IMAGES))
    inside = pasted.all(axis=(1, 4))
    places = []
    for box, one in zip(inside, share, strict=True):
        assert 1 - box.sum() / (HEIGHT * WIDTH) == pytest.approx(one, abs=1e-6)
        if box.any():
            rows, columns = np.flatnonzero(box.any(axis=1)), np.flatnonzero(box.any(axis=0))
            assert box.sum() == len(rows) * len(columns)
            assert np.array_equal(rows, np.arange(rows[0], rows[-1] + 1))
            assert np.array_equal(columns, np.arange(columns[0], columns[-1] + 1))
            places.append((rows.mean(), columns.mean()))
    # Centres all over the image.
    assert np.ptp(places, axis=0) == pytest.approx([HEIGHT, WIDTH], abs=3)

    # The same law with NumPy: timm/data/mixup.py, rand_bbox and its correction.
    rng = np.random.default_rng(1)
    ratio = np.sqrt(1 - rng.beta(1, 1, 1500))
    area = np.ones(1500)
    for size in (HEIGHT, WIDTH):
        side, centre = (size * ratio).astype(int), rng.integers(0, size, 1500)
        area *= np.clip(centre + side // 2, 0, size) - np.clip(centre - side // 2, 0, size)
    expected = 1 - area / (HEIGHT * WIDTH)
    assert scipy.stats.ks_2samp(share, expected).statistic < 0.06


def test_probabilities() -> None:
    mixing = Mixing(mixup=0.8, cutmix=1.0, prob=0.6, switch=0.3)
    images, _ = draws(mixing, 2000)
    own, other = images == IMAGES, images == IMAGES[::-1]
    untouched = own.all(axis=(1, 2, 3, 4))
    cut = (own | other).all(axis=(1, 2, 3, 4)) & ~untouched
    # A few boxes are empty, and so count as untouched.
    assert abs(untouched.mean() - 0.4) < 0.06
    assert abs(cut.mean() - 0.18) < 0.04


@given(
    mixup=st.floats(0, 3), cutmix=st.floats(0.05, 3), prob=st.floats(0, 1), seed=st.integers(0, 99)
)
@settings(max_examples=15, deadline=None)
def test_label_mass_is_one_whatever_is_mixed(
    mixup: float, cutmix: float, prob: float, seed: int
) -> None:
    mixing = Mixing(mixup=mixup if mixup > 0.05 else 0.0, cutmix=cutmix, prob=prob)
    images, targets = mix(
        mixing, jax.random.key(seed), jnp.asarray(IMAGES), jnp.asarray(LABELS), CLASSES, 0.1
    )
    assert np.isfinite(np.asarray(images)).all()
    np.testing.assert_allclose(targets.sum(axis=-1), 1, atol=1e-5)
    assert np.all(np.asarray(targets) >= 0)


def test_compiled_or_not() -> None:
    mixing, key = Mixing(mixup=0.8, cutmix=1.0), jax.random.key(9)
    plain = mix(mixing, key, jnp.asarray(IMAGES), jnp.asarray(LABELS), CLASSES, 0.1)
    compiled = jax.jit(mix, static_argnums=(0, 4, 5))(mixing, key, IMAGES, LABELS, CLASSES, 0.1)
    for ours, theirs in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match=r"mixup -0\.1 and cutmix 0\.0 must be at least 0"):
        Mixing(mixup=-0.1)
    with pytest.raises(InputError, match=r"prob 1\.2 and switch 0\.5"):
        Mixing(prob=1.2)
    with pytest.raises(InputError, match=r"smoothing 1\.5"):
        mix(Mixing(), KEY, jnp.asarray(IMAGES), jnp.asarray(LABELS), CLASSES, 1.5)
