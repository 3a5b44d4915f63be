"""The way of TPUs, products of one-hot digits, against gathers and scatters: equal to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageOps

from mimetic_jax.data.augment import tables


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

    expected = every()
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *_, tpu, default: tpu())
    for found, wanted in zip(every(), expected, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def autocontrast(image: jax.Array) -> jax.Array:
    return tables.apply_table(image, tables.autocontrast_table(tables.histogram(image)))


def test_stretched_levels_are_pillows_for_any_range() -> None:
    """Where Pillow's float64 falls below a whole number, and where it doesn't."""
    rng = np.random.default_rng(1)
    ends = np.sort(rng.integers(0, 256, (64, 3, 2)), axis=-1)
    ends[0] = [[0, 255], [0, 1], [254, 255]]
    low, high = ends[..., 0], ends[..., 1]
    ramp = np.arange(256)[:, None]
    images = np.clip(ramp, low[:, None], high[:, None])[:, :, None].astype(np.uint8)
    found = jax.jit(jax.vmap(autocontrast))(images.astype(np.float32))
    expected = [np.asarray(ImageOps.autocontrast(Image.fromarray(image))) for image in images]
    np.testing.assert_array_equal(found, np.stack(expected))
