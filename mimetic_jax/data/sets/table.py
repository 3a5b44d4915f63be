"""The table of data sets: what is known of each without loading it, and what reads it."""

from __future__ import annotations

from mimetic_jax.base.errors import unknown
from mimetic_jax.data.paths import check_unused
from mimetic_jax.data.sets.dataset import DatasetInfo
from mimetic_jax.data.sets.readers import read_digits

_KNOWN = {
    info.name: info
    for info in (
        DatasetInfo(
            "digits",
            (8, 8, 1),
            10,
            1_437,
            360,
            mean=(0.3058,),
            std=(0.3761,),
            source="scikit-learn",
            included=read_digits,
        ),
        DatasetInfo(
            "cifar10",
            (32, 32, 3),
            10,
            50_000,
            10_000,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
            source="https://www.cs.toronto.edu/~kriz/cifar.html",
            tfds="cifar10",
            arrays=True,
        ),
        # With the fine labels.
        DatasetInfo(
            "cifar100",
            (32, 32, 3),
            100,
            50_000,
            10_000,
            mean=(0.5071, 0.4865, 0.4409),
            std=(0.2673, 0.2564, 0.2762),
            source="https://www.cs.toronto.edu/~kriz/cifar.html",
            tfds="cifar100",
            arrays=True,
        ),
        # The cropped digits, without the extra images. Mean and standard deviation as in public
        # training code (PatrickZH/DeepCore and others).
        DatasetInfo(
            "svhn",
            (32, 32, 3),
            10,
            73_257,
            26_032,
            mean=(0.4377, 0.4438, 0.4728),
            std=(0.1980, 0.2010, 0.1970),
            source="http://ufldl.stanford.edu/housenumbers/",
            tfds="svhn_cropped",
        ),
        # Without the unlabeled images.
        DatasetInfo(
            "stl10",
            (96, 96, 3),
            10,
            5_000,
            8_000,
            source="https://cs.stanford.edu/~acoates/stl10/",
            tfds="stl10",
        ),
        # The test images have no public labels, so the validation images are the test set.
        DatasetInfo(
            "tiny_imagenet",
            (64, 64, 3),
            200,
            100_000,
            10_000,
            mean=(0.4802, 0.4481, 0.3975),
            std=(0.2770, 0.2691, 0.2821),
            source="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            splits=("train", "validation"),
            folder="tiny-imagenet-200",
        ),
        DatasetInfo(
            "food101",
            (224, 224, 3),
            101,
            75_750,
            25_250,
            source="https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/",
            tfds="food101",
            splits=("train", "validation"),
            streamed=True,
        ),
        DatasetInfo(
            "oxford_flowers102",
            (224, 224, 3),
            102,
            2_040,
            6_149,
            source="https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
            tfds="oxford_flowers102",
            splits=("train+validation", "test"),
            streamed=True,
        ),
        DatasetInfo(
            "oxford_iiit_pet",
            (224, 224, 3),
            37,
            3_680,
            3_669,
            source="https://www.robots.ox.ac.uk/~vgg/data/pets/",
            tfds="oxford_iiit_pet",
            streamed=True,
        ),
        DatasetInfo(
            "imagenet2012",
            (224, 224, 3),
            1_000,
            1_281_167,
            50_000,
            source="https://image-net.org/download-images",
            tfds="imagenet2012",
            splits=("train", "validation"),
            streamed=True,
        ),
    )
}


def describe(name: str, data_dir: str | None = None) -> DatasetInfo:
    """Return the shape and size of a data set, from its name alone: no file is opened."""
    if name not in _KNOWN:
        raise unknown("data set", name, _KNOWN)
    if _KNOWN[name].included:
        check_unused(name, data_dir, "folder or folder_streamed")
    return _KNOWN[name]


def names() -> tuple[str, ...]:
    """Return the names that `describe` knows."""
    return tuple(_KNOWN)
