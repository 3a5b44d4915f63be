"""What is known of a data set before any of its files is opened."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from mimetic_jax.base.errors import InputError
from mimetic_jax.data import load_dataset
from mimetic_jax.data.sets.table import describe, names


def test_names_are_those_described() -> None:
    assert len(set(names())) == len(names())
    assert [describe(name).name for name in names()] == list(names())


@pytest.mark.parametrize("function", [load_dataset, describe])
def test_an_unknown_name_gets_the_known_ones_and_the_nearest(
    function: Callable[[str], object],
) -> None:
    with pytest.raises(InputError, match="did you mean 'cifar10'") as caught:
        function("cifar-10")
    assert all(name in str(caught.value) for name in names())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", names())
def test_a_record_is_complete(name: str) -> None:
    info = describe(name)
    channels = info.image_shape[-1]
    assert len(info.mean) == len(info.std) == channels
    assert all(0 < value < 1 for value in (*info.mean, *info.std))
    assert 1 < info.num_classes <= info.num_train
    assert info.num_test >= info.num_classes
    assert info.source
    # A streamed set is read as TFDS prepared it.
    assert info.tfds or not info.streamed


def test_a_record_prints_as_one_line() -> None:
    expected = "cifar10, 50,000 train and 10,000 test images of (32, 32, 3), 10 classes"
    assert str(describe("cifar10")) == expected


@pytest.mark.parametrize(
    ("name", "per_class"),
    [
        ("cifar10", (5_000, 1_000)),
        ("cifar100", (500, 100)),
        ("stl10", (500, 800)),
        ("tiny_imagenet", (500, 50)),
        ("food101", (750, 250)),
    ],
)
def test_published_counts_of_each_class(name: str, per_class: tuple[int, int]) -> None:
    info = describe(name)
    assert (info.num_train, info.num_test) == tuple(n * info.num_classes for n in per_class)


def test_tfds_has_these_classes_and_shapes() -> None:
    """By the builders that come with TFDS: no file of the data is needed."""
    import tensorflow_datasets as tfds

    for info in map(describe, names()):
        if info.tfds:
            features = tfds.builder_cls(info.tfds)(data_dir="nowhere").info.features
            assert features["label"].num_classes == info.num_classes
            if not info.streamed:
                assert features["image"].shape == info.image_shape


def test_the_digits() -> None:
    """A fixed, stratified split of images that are all different, as the record says."""
    info, data = describe("digits"), load_dataset("digits")
    assert data.image_shape == info.image_shape
    assert data.num_classes == info.num_classes
    train, test = (
        {image.tobytes() for image in images} for images in (data.train_images, data.test_images)
    )
    assert (len(train), len(test)) == (info.num_train, info.num_test)
    assert not train & test
    in_train, in_test = (
        np.bincount(labels, minlength=10) for labels in (data.train_labels, data.test_labels)
    )
    assert np.all(np.abs(in_test - (in_train + in_test) / 5) <= 1)
    grays = np.unique(data.train_images).astype(int)
    assert (grays[0], grays[-1]) == (0, 255)
    np.testing.assert_allclose(grays, np.linspace(0, 255, 17), atol=0.5)
    normal = (data.train_images / 255 - info.mean[0]) / info.std[0]
    assert abs(normal.mean()) < 1e-3
    assert abs(normal.std() - 1) < 1e-3
    assert load_dataset("digits").fingerprint() == data.fingerprint()


def test_importing_the_package_imports_no_reader() -> None:
    program = (
        "import sys, mimetic_jax.data\n"
        "assert not {'tensorflow_datasets', 'sklearn', 'PIL', 'cv2', 'grain'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
