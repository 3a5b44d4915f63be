"""The ways of TPUs and GPUs through an augmentation, against gathers and one image at a time."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.data.augment import geometry, tables
from mimetic_jax.data.augment.chosen import where_chosen
from mimetic_jax.data.augment.pipeline import Augmentation, augment_images, example_keys
from tests.typical import typical

KEY = jax.random.key(0)
HEIGHT, WIDTH = 30, 34
MAPS = [
    ("shear_x", 0.3),
    ("shear_y", -0.3),
    ("translate_x", 0.45 * WIDTH),
    ("translate_y", -7),
    ("translate_x", 100.0),
    *(("rotate", degrees) for degrees in (30.0, -30.0, -11.3, 0.01)),
]
MATRICES = jnp.stack(
    [
        geometry.identity(),
        *(geometry.MATRICES[name](argument, HEIGHT, WIDTH) for name, argument in MAPS),
    ]
)


def on_tpu(*arguments, tpu, default):
    return tpu(*arguments)


def mapped(interpolation):
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (HEIGHT, WIDTH, 2))
    # A third channel of one color: sums of its levels have to stay whole.
    image = jnp.asarray(np.dstack([noise, np.full((HEIGHT, WIDTH), 254)]), jnp.float32)
    fill = jnp.array([9.0, 99.0, 254.0])

    def one(matrix):
        return geometry.affine(image, matrix, interpolation, fill, KEY)

    return np.asarray(jax.jit(jax.vmap(one))(MATRICES))


@typical(
    ("interpolation", "off"), [("nearest", 0.0)], slow=[("bilinear", 0.01), ("bicubic", 0.005)]
)
def test_shears_and_a_window_are_the_gathers(interpolation, off, monkeypatch):
    """Except where truncation turns the last digit of a float into a level."""
    expected = mapped(interpolation)
    monkeypatch.setattr(jax.lax, "platform_dependent", on_tpu)
    found = mapped(interpolation)
    apart = np.abs(found - expected)
    assert (apart > 0).mean() <= off
    assert apart.max() <= 1
    assert (found[..., 2] == 254).all()
    np.testing.assert_array_equal(found[0], expected[0])


def test_products_are_gathers_and_scatters(monkeypatch):
    rng = np.random.default_rng(0)
    image = jnp.asarray(rng.integers(0, 256, (20, 24, 3)), jnp.float32)
    table = jnp.asarray(rng.integers(0, 256, (3, 256)), jnp.float32)

    def every():
        applied = (tables.apply_table(image, one) for one in (table, table[:1]))
        return [tables.histogram(image), *applied]

    expected = jax.jit(every)()
    monkeypatch.setattr(jax.lax, "platform_dependent", on_tpu)
    for found, wanted in zip(jax.jit(lambda: every())(), expected, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def most_indices(platform):
    """Numbers in the indices of the largest gather or scatter, for 2 images of 32x32."""
    augmentation = Augmentation(flip=True, randaugment="rand-m9-n1-inc1")

    def augmented(key, images):
        keys = example_keys(key, 0, 2)
        return augment_images(augmentation, keys, images, (0.5,) * 3, (0.2,) * 3)

    images = jax.ShapeDtypeStruct((2, 32, 32, 3), jnp.uint8)
    traced = jax.jit(augmented).trace(jax.random.key(0), images)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    operation = r'"stablehlo\.(?:gather|scatter)".*?: \(tensor<[^>]*>, tensor<((?:\d+x)*)i32>'
    shapes = re.findall(operation, text, re.DOTALL)
    return max(math.prod(int(n) for n in shape.split("x")[:-1]) for shape in shapes)


@pytest.mark.slow
def test_a_tpu_gathers_no_pixels():
    """What is left takes a row of a table for each channel, or a slice of the whole batch."""
    assert most_indices("cpu") >= 2 * 32 * 32
    assert most_indices("tpu") <= 2 * 3 * 3


IMAGES = jnp.asarray(np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3)), jnp.float32)
CHOSEN = jnp.array([False, True, True, False, False, True])
FACTORS = jnp.arange(6, dtype=jnp.float32)


def scaled(image, by):
    return image * by["factor"] + by["shift"]


def changed(chosen, image, factor, shift=1.0):
    by = {"factor": factor, "shift": jnp.asarray(shift)}
    return where_chosen(chosen, scaled, image, by, share=0.5)


EVERY = IMAGES * FACTORS[:, None, None, None] + 1


def test_one_choice_or_one_image_for_all_and_batches_of_batches():
    @jax.jit
    def found():
        two = (jnp.stack([CHOSEN, ~CHOSEN]), jnp.stack([IMAGES] * 2), jnp.stack([FACTORS] * 2))
        return (
            jax.vmap(changed, in_axes=(None, 0, None))(CHOSEN[1], IMAGES, FACTORS[2]),
            jax.vmap(changed, in_axes=(0, None, 0))(CHOSEN, IMAGES[0], FACTORS),
            jax.vmap(jax.vmap(changed))(*two),
            jnp.stack([changed(*each) for each in zip(CHOSEN, IMAGES, FACTORS, strict=True)]),
        )

    one_choice, one_image, twice, alone = found()
    by_image = CHOSEN[:, None, None, None]
    np.testing.assert_array_equal(one_choice, IMAGES * 2 + 1)
    image = IMAGES[0] * FACTORS[:, None, None, None] + 1
    np.testing.assert_array_equal(one_image, jnp.where(by_image, image, IMAGES[0]))
    np.testing.assert_array_equal(twice[0], jnp.where(by_image, EVERY, IMAGES))
    np.testing.assert_array_equal(twice[1], jnp.where(by_image, IMAGES, EVERY))
    np.testing.assert_array_equal(alone, twice[0])


@pytest.mark.parametrize(
    "beyond", [None, -0.9, 0.0, 3.0], ids=["one by one", "pieces of 2", "of 3", "of all"]
)
@pytest.mark.parametrize("chosen", [CHOSEN, CHOSEN & False, CHOSEN | True], ids=["3", "0", "6"])
def test_only_chosen_images_change_on_gpus_in_pieces(chosen, beyond, monkeypatch):
    if beyond is not None:
        monkeypatch.setattr("mimetic_jax.data.augment.chosen.BEYOND", beyond)
        monkeypatch.setattr(jax.lax, "platform_dependent", lambda *, cuda, **_: cuda())
    found = jax.jit(jax.vmap(changed))(chosen, IMAGES, FACTORS)
    np.testing.assert_array_equal(found, np.where(chosen[:, None, None, None], EVERY, IMAGES))
