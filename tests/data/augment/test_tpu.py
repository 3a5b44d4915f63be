"""The way of TPUs, shears and a window and products of digits, against gathers and scatters."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.data.augment import geometry, tables
from mimetic_jax.data.augment.pipeline import Augmentation, augment_images, example_keys

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


def mapped(interpolation: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (HEIGHT, WIDTH, 2))
    # A third channel of one color: sums of its levels have to stay whole.
    image = jnp.asarray(np.dstack([noise, np.full((HEIGHT, WIDTH), 254)]), jnp.float32)
    fill = jnp.array([9.0, 99.0, 254.0])

    def one(matrix: jax.Array) -> jax.Array:
        return geometry.affine(image, matrix, interpolation, fill, KEY)

    return np.asarray(jax.jit(jax.vmap(one))(MATRICES))


@pytest.mark.parametrize(
    ("interpolation", "off"), [("nearest", 0.0), ("bilinear", 0.01), ("bicubic", 0.005)]
)
def test_shears_and_a_window_are_the_gathers(
    interpolation: str, off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except where truncation turns the last digit of a float into a level."""
    expected = mapped(interpolation)
    monkeypatch.setattr(jax.lax, "platform_dependent", on_tpu)
    found = mapped(interpolation)
    apart = np.abs(found - expected)
    assert (apart > 0).mean() <= off
    assert apart.max() <= 1
    assert (found[..., 2] == 254).all()
    np.testing.assert_array_equal(found[0], expected[0])


def test_products_are_gathers_and_scatters(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    image = jnp.asarray(rng.integers(0, 256, (20, 24, 3)), jnp.float32)
    table = jnp.asarray(rng.integers(0, 256, (3, 256)), jnp.float32)
    shared = table[:1]

    def every() -> list[jax.Array]:
        return [
            tables.histogram(image),
            tables.apply_table(image, table),
            tables.apply_table(image, shared),
        ]

    expected = jax.jit(every)()
    monkeypatch.setattr(jax.lax, "platform_dependent", on_tpu)
    for found, wanted in zip(jax.jit(lambda: every())(), expected, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def most_indices(platform: str) -> int:
    """Numbers in the indices of the largest gather or scatter, for 2 images of 32x32."""
    augmentation = Augmentation(flip=True, randaugment="rand-m9-n1-inc1")

    def augmented(key: jax.Array, images: jax.Array) -> jax.Array:
        keys = example_keys(key, 0, 2)
        return augment_images(augmentation, keys, images, (0.5,) * 3, (0.2,) * 3)

    images = jax.ShapeDtypeStruct((2, 32, 32, 3), jnp.uint8)
    traced = jax.jit(augmented).trace(jax.random.key(0), images)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    operation = r'"stablehlo\.(?:gather|scatter)".*?: \(tensor<[^>]*>, tensor<((?:\d+x)*)i32>'
    shapes = re.findall(operation, text, re.DOTALL)
    return max(math.prod(int(n) for n in shape.split("x")[:-1]) for shape in shapes)


def test_a_tpu_gathers_no_pixels() -> None:
    """What is left takes a row of a table for each channel, or a slice of the whole batch."""
    assert most_indices("cpu") >= 2 * 32 * 32
    assert most_indices("tpu") <= 2 * 3 * 3
