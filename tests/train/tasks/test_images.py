"""The order in which a task augments, mixes and erases; the view that it tests on."""

import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from configs.default import default
from mimetic_jax import InputError, data
from mimetic_jax.train.tasks.images import ImageTask

# No pixel has the mean of the data, which erasing would write.
PIXELS = jax.random.randint(jax.random.key(1), (16, 8, 8, 1), 128, 256).astype(jnp.uint8)
LABELS = jax.random.randint(jax.random.key(2), (16,), 0, 10)


def prepared(**augment) -> np.ndarray:
    config = default()
    config.model.update(width=16, depth=1, heads=2, patch=4)
    config.data.augment.update(erase_mode="const", **augment)
    task = ImageTask(config, data.describe("digits"))
    with mock.patch.object(data, "mix", halves):
        images, _ = jax.jit(task.prepare)(jax.random.key(3), jnp.int32(0), (PIXELS, LABELS))
    return np.asarray(images)


def halves(mixing, key, images, labels, num_classes, smoothing):
    """Mixup with λ = 1/2, which compiles faster than a draw of λ."""
    return (images + images[::-1]) / 2, jax.nn.one_hot(labels, num_classes)


def task(fraction: float, shape: tuple[int, int, int], streamed: bool = False) -> ImageTask:
    config = default()
    config.model.update(width=16, depth=1, heads=2, patch=4)
    config.data.eval_fraction = fraction
    info = dataclasses.replace(data.describe("cifar10"), image_shape=shape, streamed=streamed)
    return ImageTask(config, info)


def test_images_of_the_models_size_are_cut_as_well() -> None:
    """Resize(10) and CenterCrop(8), written out in Pillow, within a level."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)
    resized = [
        Image.fromarray(image).resize((10, 10), Image.Resampling.BICUBIC) for image in pixels
    ]
    expected = np.stack([np.asarray(image)[1:9, 1:9] for image in resized])
    whole, streamed = task(1.0, (8, 8, 3)), task(0.8, (8, 8, 3), streamed=True)
    level = 1.01 / 255 / min(whole.info.std)
    found = task(0.8, (8, 8, 3)).view(pixels)
    np.testing.assert_allclose(found, whole.view(expected), rtol=0, atol=level)
    np.testing.assert_array_equal(streamed.view(pixels), whole.view(pixels))


def test_a_square_view_of_other_images_is_refused() -> None:
    with pytest.raises(InputError, match=r"eval_fraction 0\.8 cuts a square, but images are 8x12"):
        task(0.8, (8, 12, 3))
    assert task(1.0, (8, 12, 3)).view(np.zeros((2, 8, 12, 3), np.uint8)).shape == (2, 8, 12, 3)


def test_holes_are_mixed_or_whole():
    """Erased last, an image is the mixed one but for its own hole."""
    mixed, last, before = prepared(), prepared(erase=1.0, erase_mixed=True), prepared(erase=1.0)
    hole = last == 0
    assert hole.any(axis=(1, 2, 3)).all()
    np.testing.assert_allclose(last, np.where(hole, 0, mixed), atol=1e-6)
    changed = ~np.isclose(before, mixed, atol=1e-6)
    # An image's own hole and that of the image it is mixed with.
    np.testing.assert_array_equal(changed, hole | hole[::-1])
    np.testing.assert_array_equal(before == 0, hole & hole[::-1])
