"""Class-balanced parts: of the right size, nested, and a function of the seed."""

import itertools

import numpy as np
import pytest

from mimetic_jax.data.sets.dataset import ImageDataset, balanced, held_out
from mimetic_jax.errors import InputError

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(7), range(10, 80, 10)))


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.25, 0.5, 1.0])
def test_every_class_keeps_the_fraction(fraction: float) -> None:
    indices = balanced(LABELS, fraction=fraction, seed=0)
    counts = np.bincount(LABELS[indices])
    assert counts.tolist() == [max(1, round(fraction * size)) for size in range(10, 80, 10)]
    assert np.array_equal(indices, np.unique(indices))


def test_smaller_parts_are_subsets_of_larger_ones() -> None:
    parts = [set(balanced(LABELS, fraction=f, seed=3).tolist()) for f in (0.1, 0.25, 0.5, 1.0)]
    for smaller, larger in itertools.pairwise(parts):
        assert smaller < larger


def test_seeds_differ_and_repeat() -> None:
    first, again, other = (balanced(LABELS, fraction=0.3, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"fraction": 0.0}, "fraction 0.0"),
        ({"fraction": 1.5}, "fraction 1.5"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_impossible_parts_are_refused(wrong: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        balanced(LABELS, **{"fraction": 0.5, "seed": 0} | wrong)


def test_held_out_images_are_those_left_out_of_training() -> None:
    """Each image is its own number, so that none of the test split can be overlooked."""
    numbers = np.arange(len(LABELS), dtype=np.uint16)
    images = np.stack([numbers // 256, numbers % 256], -1).astype(np.uint8)[:, None, :, None]
    test = np.full((9, 1, 2, 1), 255, np.uint8)
    labels = LABELS.astype(np.int32)
    whole = ImageDataset("numbers", images, labels, test, np.zeros(9, np.int32), 7)
    assert held_out(whole, 0.0) is whole
    found = held_out(whole, 0.2)
    assert np.bincount(found.test_labels).tolist() == [round(0.2 * n) for n in range(10, 80, 10)]
    parts = [
        [tuple(i.ravel().tolist()) for i in part]
        for part in (found.train_images, found.test_images)
    ]
    assert sorted(parts[0] + parts[1]) == sorted(tuple(i.ravel().tolist()) for i in images)
    assert np.array_equal(found.test_labels, LABELS[[256 * a + b for a, b in parts[1]]])
