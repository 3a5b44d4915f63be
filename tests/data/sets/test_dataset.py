"""What an ImageDataset accepts, and what its fingerprint depends on."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from mimetic_jax.data import ImageDataset
from mimetic_jax.errors import InputError


def dots(**changes: Any) -> ImageDataset:
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {
        "name": "dots",
        "train_images": rng.integers(0, 256, (6, 4, 5, 2), np.uint8),
        "train_labels": np.array([0, 1, 2, 0, 1, 2], np.int32),
        "test_images": rng.integers(0, 256, (3, 4, 5, 2), np.uint8),
        "test_labels": np.array([2, 1, 0], np.int32),
        "num_classes": 3,
    }
    return ImageDataset(**(fields | changes))


def test_image_shape() -> None:
    assert dots().image_shape == (4, 5, 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_images": np.zeros((6, 4, 5, 2), np.float32)}, "float32"),
        ({"train_images": np.zeros((6, 4, 5), np.uint8)}, r"\(6, 4, 5\)"),
        (
            {"test_images": np.zeros((0, 4, 5, 2), np.uint8), "test_labels": np.zeros(0, np.int32)},
            r"\(0, 4, 5, 2\)",
        ),
        ({"train_labels": np.zeros(5, np.int32)}, r"\(5,\), expected int32 of shape \(6,\)"),
        ({"train_labels": np.zeros(6, np.int64)}, "int64"),
        ({"test_labels": np.array([0, 1, 3], np.int32)}, "from 0 to 3, expected 0 to 2"),
        ({"test_labels": np.array([0, -1, 2], np.int32)}, "from -1 to 2"),
        (
            {"test_images": np.zeros((3, 4, 4, 2), np.uint8)},
            r"test images have shape \(4, 4, 2\), train images \(4, 5, 2\)",
        ),
    ],
)
def test_contradictions_are_reported_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        dots(**changes)
    assert "\n" not in str(caught.value)


def test_fingerprint_is_of_the_values() -> None:
    assert dots().fingerprint() == dots(name="other").fingerprint()
    assert len(dots().fingerprint()) == 16


@pytest.mark.parametrize("field", ["train_images", "train_labels", "test_images", "test_labels"])
def test_fingerprint_changes_with_any_value(field: str) -> None:
    data = dots()
    array = getattr(data, field).copy()
    array.flat[-1] = (array.flat[-1] + 1) % 3
    assert dataclasses.replace(data, **{field: array}).fingerprint() != data.fingerprint()


def test_fingerprint_does_not_depend_on_the_memory_layout() -> None:
    data = dots()
    fortran = dataclasses.replace(data, train_images=np.asfortranarray(data.train_images))
    assert fortran.fingerprint() == data.fingerprint()
