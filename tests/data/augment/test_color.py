"""Color operations against Pillow on the same bytes, image by image."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.augment import color, tables
from tests.data.made import pictures
from tests.typical import typical


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
    "brightness": color.brightness,
    "contrast": lambda image, factor: color.blend(color.mean_gray(image), image, factor),
    "color": lambda image, factor: color.blend(color.grayscale(image), image, factor),
    "sharpness": lambda image, factor: color.blend(color.smooth(image), image, factor),
}


def enhanced(name: str, factor: float, image: Image.Image) -> Image.Image:
    return getattr(ImageEnhance, name.capitalize())(image).enhance(factor)


@typical("channels", [3], slow=[1])
def test_operations_are_pillows(channels):
    """Equal on levels; enhancements, which take means, within a level, and factor 1 keeps all."""
    images = pictures()[..., :channels]
    levels = images.astype(np.float32)

    @jax.jit  # in one program: compiling each takes longer than computing all
    def every(factor: jax.Array) -> tuple[dict[str, jax.Array], ...]:
        exact = {name: jax.vmap(ours)(levels) for name, (ours, _) in EXACT.items()}
        return exact, {
            name: jax.vmap(operation, in_axes=(0, None))(levels, factor)
            for name, operation in OPERATIONS.items()
        }

    for factor in (0.0, 0.19, 0.73, 1.0, 1.81, 2.5):
        exact, enhancements = every(factor)
        for name, found in enhancements.items():
            assert np.array_equal(found, np.rint(found))
            expected = by_pillow(functools.partial(enhanced, name, factor), images)
            apart = np.abs(np.asarray(found).astype(int) - expected)
            # Sums in another order may round to the other side of a whole number.
            assert apart.max() <= (factor != 1), name
            assert (apart > 0).mean() < 1e-3, name
    for name, found in exact.items():
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, by_pillow(EXACT[name][1], images), err_msg=name)


def test_autocontrast_truncates_as_pillow_for_any_range():
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


def test_equalize_of_a_large_image_and_of_few_levels():
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


def test_posterize_to_no_bits_is_black():
    """Pillow 13 rejects 0 bits; earlier versions apply a mask of 0."""
    assert not by_us(functools.partial(color.posterize, bits=0), pictures()).any()


def test_tiny_images_have_no_inside_to_smooth():
    images = pictures()[:, :2, :3]
    np.testing.assert_array_equal(by_us(color.smooth, images), images)


def test_bad_input():
    with pytest.raises(InputError, match="2 channels are neither"):
        color.grayscale(jnp.zeros((4, 4, 2)))
