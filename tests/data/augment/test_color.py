"""Color operations against Pillow on the same bytes, image by image."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from mimetic_jax.data.augment import color, tables
from mimetic_jax.errors import InputError
from tests.data.augment.photographs import photographs

KEY = jax.random.key(5)


def pictures(height: int = 40, width: int = 48) -> np.ndarray:
    """A gradient, noise, hard edges, 1/f noise, low contrast, one level, and an empty channel."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:height, :width]
    gradient = np.stack([rows * 5, columns * 4, (rows + columns) * 2], axis=-1) % 256
    noise = rng.integers(0, 256, (height, width, 3))
    edges = np.repeat(((rows // 3 + columns // 5) % 2 * 220 + 20)[..., None], 3, axis=-1)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)) + 0.01
    spectrum = np.fft.fft2(rng.normal(size=(3, height, width))) / frequency
    natural = np.fft.ifft2(spectrum).real.transpose(1, 2, 0)
    natural = np.clip(natural / natural.std() * 50 + 120, 0, 255)
    dull = natural // 4 + 60
    flat = np.full_like(noise, 77)
    lopsided = natural * np.array([1, 0.2, 0])
    every = (gradient, noise, edges, natural, dull, flat, lopsided)
    return np.stack(every).astype(np.uint8)


def by_pillow(operation: Callable[[Image.Image], Image.Image], images: np.ndarray) -> np.ndarray:
    gray = images.shape[-1] == 1
    done = [
        np.asarray(operation(Image.fromarray(image[..., 0] if gray else image))) for image in images
    ]
    return np.stack(done).reshape(images.shape).astype(int)


def by_us(operation: Callable[[jax.Array], jax.Array], images: np.ndarray) -> np.ndarray:
    out = np.asarray(jax.jit(jax.vmap(operation))(images.astype(np.float32)))
    assert out.dtype == np.float32
    assert np.array_equal(out, np.rint(out))
    return out.astype(int)


def by_table(table: Callable[[jax.Array], jax.Array], image: jax.Array) -> jax.Array:
    return tables.apply_table(image, table(tables.histogram(image)))


autocontrast = functools.partial(by_table, tables.autocontrast_table)
equalize = functools.partial(by_table, tables.equalize_table)

EXACT = {
    "invert": (color.invert, ImageOps.invert),
    "autocontrast": (autocontrast, ImageOps.autocontrast),
    "equalize": (equalize, ImageOps.equalize),
    "grayscale": (color.grayscale, lambda image: image.convert("L").convert(image.mode)),
    **{
        f"posterize {bits}": (
            functools.partial(color.posterize, bits=bits),
            functools.partial(ImageOps.posterize, bits=bits),
        )
        for bits in (1, 4, 8)
    },
    **{
        f"solarize {threshold}": (
            functools.partial(color.solarize, threshold=threshold),
            functools.partial(ImageOps.solarize, threshold=threshold),
        )
        for threshold in (0, 100.5, 256)
    },
}
OPERATIONS = {
    **{name: getattr(color, name) for name in ("brightness", "contrast", "color")},
    "sharpness": lambda image, factor: color.blend(color.smooth(image), image, factor),
}
ENHANCE = ("brightness", "contrast", "color", "sharpness")


def enhanced(name: str, factor: float, image: Image.Image) -> Image.Image:
    return getattr(ImageEnhance, name.capitalize())(image).enhance(factor)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("channels", [1, 3])
def test_operations_on_levels_equal_pillow(name: str, channels: int) -> None:
    ours, theirs = EXACT[name]
    images = pictures()[..., :channels]
    np.testing.assert_array_equal(by_us(ours, images), by_pillow(theirs, images))


@pytest.mark.parametrize("name", ENHANCE)
@pytest.mark.parametrize("channels", [1, 3])
def test_enhancements_are_within_a_level_of_pillow(name: str, channels: int) -> None:
    images = pictures()[..., :channels]
    operation = jax.jit(jax.vmap(OPERATIONS[name], in_axes=(0, None)))
    for factor in (0.0, 0.19, 0.73, 1.0, 1.81, 2.5):
        out = np.asarray(operation(images.astype(np.float32), factor)).astype(int)
        apart = np.abs(out - by_pillow(functools.partial(enhanced, name, factor), images))
        assert apart.max() <= 1
        # Sums in another order may round to the other side of a whole number.
        assert (apart > 0).mean() < 1e-3


def test_factor_one_keeps_the_image() -> None:
    images = pictures()
    for name in ENHANCE:
        operation = functools.partial(OPERATIONS[name], factor=1.0)
        np.testing.assert_array_equal(by_us(operation, images), images)


def test_autocontrast_truncates_as_pillow_for_any_range() -> None:
    """For every pair of lowest and highest: where the quotient is whole, float64 may be 1 short."""
    rng = np.random.default_rng(1)
    pairs = np.sort(rng.integers(0, 256, (3000, 2)), axis=1).astype(np.uint8)
    ramp = np.arange(256, dtype=np.uint8)
    images = np.clip(ramp, pairs[:, :1], pairs[:, 1:])[:, None, :, None]
    expected = by_pillow(ImageOps.autocontrast, images)
    np.testing.assert_array_equal(by_us(autocontrast, images), expected)
    stretched = 255 * (images.astype(int) - images.min(axis=2, keepdims=True))
    span = np.maximum(np.ptp(images.astype(int), axis=2, keepdims=True), 1)
    short = (expected < stretched // span) & (np.ptp(images, axis=2, keepdims=True) > 0)
    assert short.sum() > 100  # or nothing was tested


def test_equalize_of_a_large_image_and_of_few_levels() -> None:
    rng = np.random.default_rng(2)
    images = np.stack(
        [
            np.clip(rng.normal(100, 30, (200, 150, 1)), 0, 255),
            rng.choice([3, 90, 91, 250], (200, 150, 1), p=[0.7, 0.1, 0.1, 0.1]),
            rng.choice([0, 255], (200, 150, 1), p=[0.999, 0.001]),
        ]
    ).astype(np.uint8)
    expected = by_pillow(ImageOps.equalize, images)
    np.testing.assert_array_equal(by_us(equalize, images), expected)


def test_solarize_add_against_timms_table() -> None:
    """timm/data/auto_augment.py: i + add, at most 255, for i below 128."""
    levels = np.arange(256)
    for add in (0, 55, 110, 128):
        expected = np.where(levels < 128, np.minimum(levels + add, 255), levels)
        np.testing.assert_array_equal(color.solarize_add(jnp.arange(256.0), add), expected)


def test_posterize_to_no_bits_is_black() -> None:
    """Pillow 13 rejects 0 bits; earlier versions apply a mask of 0."""
    assert not by_us(functools.partial(color.posterize, bits=0), pictures()).any()


def test_tiny_images_have_no_inside_to_smooth() -> None:
    images = pictures()[:, :2, :3]
    np.testing.assert_array_equal(by_us(color.smooth, images), images)


def test_jitter_applies_every_operation_once_in_an_order_that_varies() -> None:
    image = pictures()[3]
    orders = set()
    jitter = jax.jit(lambda key: color.color_jitter(key, jnp.float32(image), 0.4))
    for key in jax.random.split(KEY, 12):
        out = np.asarray(jitter(key)).astype(int)
        order_key, factor_key = jax.random.split(key)
        factors = 0.6 + 0.8 * np.asarray(jax.random.uniform(factor_key, (3,)))
        order = tuple(np.asarray(jax.random.permutation(order_key, 3)).tolist())
        expected = Image.fromarray(image)
        for index in order:
            expected = enhanced(ENHANCE[index], float(factors[index]), expected)
        apart = np.abs(out - np.asarray(expected).astype(int))
        assert apart.mean() < 0.02
        orders.add(order)
    assert len(orders) > 3


def test_bad_input() -> None:
    with pytest.raises(InputError, match="2 channels are neither"):
        color.grayscale(jnp.zeros((4, 4, 2)))


def test_photographs_equal_pillows() -> None:
    images = photographs()
    for name, (ours, theirs) in EXACT.items():
        same = np.array_equal(by_us(ours, images), by_pillow(theirs, images))
        assert same, name
    for name in ENHANCE:
        operation = functools.partial(OPERATIONS[name], factor=1.73)
        apart = np.abs(
            by_us(operation, images) - by_pillow(functools.partial(enhanced, name, 1.73), images)
        )
        print(f"{name}: {(apart > 0).mean():.1e} of the values are off, by {apart.max()} at most")
        assert apart.max() <= 1
        assert (apart > 0).mean() < 1e-3
