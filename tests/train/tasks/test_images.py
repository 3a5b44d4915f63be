"""The order in which a task augments, mixes and erases."""

from __future__ import annotations

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from configs.default import default
from mimetic_jax import data
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
