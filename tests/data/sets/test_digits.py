"""The digits: a fixed, stratified split of images that are all different."""

import numpy as np
import pytest

from mimetic_jax.data import ImageDataset, describe, load_dataset


@pytest.fixture(scope="module")
def dataset() -> ImageDataset:
    return load_dataset("digits")


def test_sizes(dataset: ImageDataset) -> None:
    assert dataset.train_images.shape == (1437, 8, 8, 1)
    assert dataset.test_images.shape == (360, 8, 8, 1)


def test_a_fifth_of_each_class_is_for_testing(dataset: ImageDataset) -> None:
    train = np.bincount(dataset.train_labels, minlength=10)
    test = np.bincount(dataset.test_labels, minlength=10)
    assert np.all(np.abs(test - (train + test) / 5) <= 1)


def test_splits_share_no_image(dataset: ImageDataset) -> None:
    train = {image.tobytes() for image in dataset.train_images}
    test = {image.tobytes() for image in dataset.test_images}
    assert len(train) == 1437
    assert len(test) == 360
    assert not train & test


def test_gray_levels_are_stretched_evenly(dataset: ImageDataset) -> None:
    levels = np.unique(dataset.train_images).astype(int)
    assert (levels[0], levels[-1]) == (0, 255)
    np.testing.assert_allclose(levels, np.linspace(0, 255, 17), atol=0.5)


def test_mean_and_std_normalize_the_training_pixels(dataset: ImageDataset) -> None:
    info = describe("digits")
    normal = (dataset.train_images / 255 - info.mean[0]) / info.std[0]
    assert abs(normal.mean()) < 1e-3
    assert abs(normal.std() - 1) < 1e-3


def test_loading_twice_gives_the_same(dataset: ImageDataset) -> None:
    assert load_dataset("digits").fingerprint() == dataset.fingerprint()
