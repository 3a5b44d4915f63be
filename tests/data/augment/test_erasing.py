"""Random erasing against timm's distribution; test_pipeline.py covers cutout."""

import functools
import itertools
import math
from collections.abc import Iterator
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from PIL import Image, ImageDraw

from mimetic_jax.data.augment.erasing import cutout_in_levels, random_erasing

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


def rectangles(images: np.ndarray) -> np.ndarray:
    """Top, left, height and width of each hole, which must be a whole rectangle."""
    found = []
    for hole in (images != 50).all(axis=-1):
        rows, columns = np.flatnonzero(hole.any(axis=1)), np.flatnonzero(hole.any(axis=0))
        assert hole.sum() == len(rows) * len(columns)
        assert np.array_equal(rows, np.arange(rows[0], rows[-1] + 1))
        assert np.array_equal(columns, np.arange(columns[0], columns[-1] + 1))
        found.append((rows[0], columns[0], len(rows), len(columns)))
    return np.array(found)


def test_rectangles_follow_timms_distribution():
    images = erased(1.0, "const")
    assert np.all((images == 0) | (images == 50))
    top, left, height, width = rectangles(images).T
    assert np.all((height < HEIGHT) & (width < WIDTH))

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
    for found, other in zip((top, left, height, width), np.array(expected).T, strict=True):
        assert scipy.stats.ks_2samp(found, other).statistic < 0.05


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


@pytest.mark.parametrize("side", [18.5, 9.25])
def test_cutout_in_levels_is_pillows_rectangle(side):
    """The original's corners for centers over the whole range, drawn by Pillow on the images."""
    keys = jax.random.split(KEY, COUNT)
    draw = jax.jit(jax.vmap(lambda key: cutout_in_levels(key, IMAGE, side)))
    images = np.asarray(draw(keys))
    hole = (images != 50).all(axis=-1)
    assert np.all(images[hole] == (125, 123, 114))
    assert np.all(images[~hole] == 50)
    found = rectangles(images)

    rng, expected = np.random.default_rng(0), []
    for column, row in rng.uniform(1, (WIDTH, HEIGHT), (COUNT, 2)):
        left, top = int(max(0, column - side / 2)), int(max(0, row - side / 2))
        image = Image.new("L", (WIDTH, HEIGHT))
        corners = (left, top, min(WIDTH, left + side), min(HEIGHT, top + side))
        ImageDraw.Draw(image).rectangle(corners, 1)
        left, top, right, bottom = image.getbbox()
        expected.append((top, left, bottom - top, right - left))
    assert {tuple(box) for box in found} - set(product_of(expected)) == set()
    for ours, theirs in zip(found.T, np.array(expected).T, strict=True):
        assert scipy.stats.ks_2samp(ours, theirs).statistic < 0.05


def product_of(boxes: list[tuple[int, int, int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Boxes of any row and any column of these, which are drawn independently."""
    rows, columns = {(b[0], b[2]) for b in boxes}, {(b[1], b[3]) for b in boxes}
    for (top, height), (left, width) in itertools.product(rows, columns):
        yield top, left, height, width


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
