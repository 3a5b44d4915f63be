"""Random erasing against timm's distribution."""

import functools
import math
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from mimetic_jax.data.augment.erasing import cutout_in_levels, random_erasing
from tests.data.made import rectangle

KEY = jax.random.key(6)
HEIGHT, WIDTH, COUNT = 30, 40, 2000
# No pixel of it is 0, or could be drawn.
IMAGE = jnp.full((HEIGHT, WIDTH, 3), 50.0)


@functools.partial(jax.jit, static_argnums=1)
def _erased(probability: float, mode: str, keys: jax.Array) -> jax.Array:
    return jax.vmap(lambda key: random_erasing(key, IMAGE, probability, mode))(keys)


@functools.cache
def erased(probability: float, mode: str) -> np.ndarray:
    return np.asarray(_erased(probability, mode, jax.random.split(KEY, COUNT)))


def test_rectangles_follow_timms_distribution():
    images = erased(1.0, "const")
    assert np.all((images == 0) | (images == 50))
    found = np.array([rectangle(hole) for hole in (images != 50).all(axis=-1)])
    assert np.all(found[:, 2:] < (HEIGHT, WIDTH))

    # The same distribution in NumPy, attempt by attempt: timm/data/random_erasing.py.
    rng = np.random.default_rng(0)
    expected = []
    while len(expected) < COUNT:
        area = rng.uniform(0.02, 1 / 3) * HEIGHT * WIDTH
        aspect = math.exp(rng.uniform(math.log(0.3), -math.log(0.3)))
        size = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if size[0] < HEIGHT and size[1] < WIDTH:
            place = rng.integers(0, HEIGHT - size[0] + 1), rng.integers(0, WIDTH - size[1] + 1)
            expected.append((*place, *size))
    for ours, theirs in zip(found.T, np.array(expected).T, strict=True):
        assert scipy.stats.ks_2samp(ours, theirs).statistic < 0.05


def test_modes_and_probabilities():
    """Noise is normal, and fresh for each value; the place depends on neither."""
    const, pixel = erased(1.0, "const"), erased(1.0, "pixel")
    np.testing.assert_array_equal(const == 50, pixel == 50)
    values = pixel[pixel != 50]
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert len(np.unique(values[:10_000])) > 9_900
    rarely = erased(0.25, "const")
    untouched = (rarely == 50).all(axis=(1, 2, 3))
    np.testing.assert_array_equal(rarely[~untouched], const[~untouched])
    assert abs(untouched.mean() - 0.75) < 0.03
    assert (erased(0.0, "const") == 50).all()


def test_an_image_too_small_for_any_rectangle_is_unchanged():
    image = jnp.ones((1, 1, 3))
    erase = jax.jit(lambda image: random_erasing(KEY, image, 1.0, "const"))
    np.testing.assert_array_equal(erase(image), image)


def test_golden_cutout_in_levels(golden):
    """The original's holes at magnitude 5, side 6.67: at the corner its generator gave."""
    arrays = golden("kentaroy_policy")
    image = arrays["image"]
    size = np.array(image.shape[:2])
    # The column is drawn first.
    centers = [np.random.RandomState(seed).uniform(size[::-1])[::-1] for seed in range(10)]

    def at(uniform: jax.Array) -> jax.Array:
        with mock.patch.object(jax.random, "uniform", return_value=uniform):
            return cutout_in_levels(KEY, jnp.float32(image), 40 * 5 / 30)

    found = jax.jit(jax.vmap(at))(jnp.array((size - centers) / (size - 1)))
    np.testing.assert_array_equal(found, [arrays[f"cutout/{seed}"] for seed in range(10)])
