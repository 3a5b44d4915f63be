"""What an ImageDataset accepts, what its fingerprint depends on, and class-balanced parts."""

import dataclasses
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.base.errors import InputError
from mimetic_jax.data import ImageDataset, load_dataset
from mimetic_jax.data.sets.dataset import balanced, part_of_seed
from mimetic_jax.data.sets.table import describe, names

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(7), range(10, 80, 10)))


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


def test_arrays_of_jax_are_arrays():
    data = dots(train_images=jnp.zeros((6, 4, 5, 2), jnp.uint8))
    assert isinstance(data.train_images, np.ndarray)
    assert data.image_shape == (4, 5, 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_images": np.zeros((6, 4, 5, 2), np.float32)}, "float32"),
        ({"train_images": np.zeros((6, 4, 5), np.uint8)}, r"\(6, 4, 5\)"),
        ({"train_labels": np.zeros(5, np.int32)}, r"\(5,\), expected int32 of shape \(6,\)"),
        ({"test_labels": np.array([0, 1, 3], np.int32)}, "from 0 to 3, expected 0 to 2"),
        (
            {"test_images": np.zeros((3, 4, 4, 2), np.uint8)},
            r"test images have shape \(4, 4, 2\), ",
        ),
        ({"test_labels": [0]}, r"^ImageDataset\.test_labels "),
        ({"num_classes": 0}, r"^ImageDataset\.num_classes "),
    ],
)
def test_contradictions_are_reported_in_one_line(changes, words):
    with pytest.raises(InputError, match=words):
        dots(**changes)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (4, 8, 8), (3, 5, 7)])
def test_channels_in_front_are_refused_with_the_transpose(shape):
    """PyTorch's [N, C, h, w] would be trained on as images of C rows and w channels."""
    images = np.random.default_rng(0).integers(0, 256, (6, *shape), np.uint8)
    labels = np.array([0, 1, 2, 0, 1, 2], np.int32)
    given = ("mine", images, labels, images, labels, 3)
    with pytest.raises(InputError, match=r"pass images\.transpose\(0, 2, 3, 1\)"):
        ImageDataset(*given)
    moved = images.transpose(0, 2, 3, 1)
    assert ImageDataset("mine", moved, labels, moved, labels, 3).image_shape[2] == shape[0]
    kept = ImageDataset(*given, any_channels=True)
    assert kept.image_shape == shape
    assert kept.part(0.5).image_shape == shape


def test_images_of_few_rows_are_images():
    labels = np.zeros(3, np.int32)
    for shape in [(3, 3, 3), (1, 1, 1), (4, 4, 4), (2, 8, 8)]:
        images = np.zeros((3, *shape), np.uint8)
        assert ImageDataset("mine", images, labels, images, labels, 1).image_shape == shape


def test_the_fingerprint_is_of_the_values_alone():
    data = dots()
    fortran = np.asfortranarray(data.train_images)
    for same in (dots(name="other"), dataclasses.replace(data, train_images=fortran)):
        assert same.fingerprint() == data.fingerprint()
    assert len(data.fingerprint()) == 16
    for field in ("train_images", "train_labels", "test_images", "test_labels"):
        array = getattr(data, field).copy()
        array.flat[-1] = (array.flat[-1] + 1) % 3
        assert dataclasses.replace(data, **{field: array}).fingerprint() != data.fingerprint()


def test_parts_keep_the_fraction_of_every_class_and_are_nested():
    parts = []
    for fraction in (0.01, 0.1, 0.25, 0.5, 1.0):
        indices = balanced(LABELS, fraction)
        counts = np.bincount(LABELS[indices])
        assert counts.tolist() == [max(1, round(fraction * size)) for size in range(10, 80, 10)]
        np.testing.assert_array_equal(indices, np.unique(indices))
        parts.append(set(indices.tolist()))
    assert all(smaller < larger for smaller, larger in itertools.pairwise(parts))


def test_seeds_have_images_of_their_own():
    """Balanced parts that share nothing, and no image that another seed chooses its rate on."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 100)).astype(np.int32)
    count, held_out = 50, balanced(labels, 0.2)
    parts = [part_of_seed(labels, seed, count, 0.2) for seed in range(8)]
    together = np.concatenate([held_out, *parts])
    np.testing.assert_array_equal(np.sort(together), np.arange(500))
    for part in parts:
        np.testing.assert_array_equal(np.bincount(labels[part]), 10)
    words = (
        "seed 8 has no 50 images of its own: 500 images, .*, are 8 such parts, of the seeds 0 to"
    )
    with pytest.raises(InputError, match=words):
        part_of_seed(labels, 8, count, 0.2)
    images = np.arange(500, dtype=np.int32).view(np.uint8).reshape(500, 2, 2, 1)
    whole = ImageDataset("mine", images, labels, images[:7], labels[:7], 5)
    own, trial = whole.of_seed(3, count), whole.of_seed(3, count, 0.2)
    np.testing.assert_array_equal(own.train_images, images[parts[3]])
    np.testing.assert_array_equal(own.test_images, whole.test_images)
    np.testing.assert_array_equal(trial.train_images, own.train_images)
    np.testing.assert_array_equal(trial.test_images, images[held_out])


def test_held_out_images_are_those_left_out_of_training():
    """Each image is its own number, so that none of the test split can be overlooked."""
    numbers = np.arange(len(LABELS), dtype=np.uint16)
    images = np.stack([numbers // 256, numbers % 256], -1).astype(np.uint8)[:, None, :, None]
    test = np.full((9, 1, 2, 1), 255, np.uint8)
    labels = LABELS.astype(np.int32)
    whole = ImageDataset("numbers", images, labels, test, np.zeros(9, np.int32), 7)
    assert whole.held_out(0.0) is whole
    found = whole.held_out(0.2)
    assert np.bincount(found.test_labels).tolist() == [round(0.2 * n) for n in range(10, 80, 10)]
    train, test = (
        part.reshape(-1, 2) @ [256, 1] for part in (found.train_images, found.test_images)
    )
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), numbers)
    np.testing.assert_array_equal(found.test_labels, LABELS[test])


@pytest.mark.parametrize("function", [load_dataset, describe])
def test_an_unknown_name_gets_the_known_ones_and_the_nearest(function):
    with pytest.raises(InputError, match="did you mean 'cifar10'") as caught:
        function("cifar-10")
    assert all(name in str(caught.value) for name in names())


@pytest.mark.parametrize("name", names())
def test_a_record_is_complete(name):
    info = describe(name)
    channels = info.image_shape[-1]
    assert len(info.mean) == len(info.std) == channels
    assert all(0 < value < 1 for value in (*info.mean, *info.std))
    assert 1 < info.num_classes <= info.num_train
    assert info.num_test >= info.num_classes
    assert info.source
    # A streamed set is read as TFDS prepared it, in three colors.
    assert (info.tfds and channels == 3) or not info.streamed


def test_published_counts_of_each_class():
    counts = {"cifar10": (5_000, 1_000), "cifar100": (500, 100), "stl10": (500, 800)}
    counts |= {"tiny_imagenet": (500, 50), "food101": (750, 250)}
    for name, per_class in counts.items():
        info = describe(name)
        assert (info.num_train, info.num_test) == tuple(n * info.num_classes for n in per_class)


def test_tfds_has_these_classes_and_shapes():
    """By the builders that come with TFDS: no file of the data is needed."""
    import tensorflow_datasets as tfds

    for info in map(describe, names()):
        if info.tfds:
            features = tfds.builder_cls(info.tfds)(data_dir="nowhere").info.features
            assert features["label"].num_classes == info.num_classes
            if not info.streamed:
                assert features["image"].shape == info.image_shape


def test_the_digits():
    """A fixed, stratified split of images that are all different, as the record says."""
    info, data = describe("digits"), load_dataset("digits")
    assert data.image_shape == info.image_shape
    assert data.num_classes == info.num_classes
    train, test = (set(map(bytes, images)) for images in (data.train_images, data.test_images))
    assert (len(train), len(test)) == (info.num_train, info.num_test)
    assert not train & test
    in_train, in_test = map(np.bincount, (data.train_labels, data.test_labels))
    assert np.all(np.abs(in_test - (in_train + in_test) / 5) <= 1)
    grays = np.unique(data.train_images).astype(int)
    assert (grays[0], grays[-1]) == (0, 255)
    np.testing.assert_allclose(grays, np.linspace(0, 255, 17), atol=0.5)
    normal = (data.train_images / 255 - info.mean[0]) / info.std[0]
    assert abs(normal.mean()) < 1e-3
    assert abs(normal.std() - 1) < 1e-3
    assert load_dataset("digits").fingerprint() == data.fingerprint()
