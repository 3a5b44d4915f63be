"""What is known of each data set without loading it."""

from __future__ import annotations

import dataclasses

from mimetic_jax.errors import unknown


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Shape and published size of a data set.

    Args:
        name: the name `load` takes.
        image_shape: height, width and channels of one image.
        num_classes: number of classes.
        num_train: training examples.
        num_test: test examples.
        mean: of each channel over the training images, in units where white is 1.
        std: standard deviation, likewise.
    """

    name: str
    image_shape: tuple[int, int, int]
    num_classes: int
    num_train: int
    num_test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


_KNOWN = {
    info.name: info
    for info in (
        DatasetInfo("digits", (8, 8, 1), 10, 1_437, 360, (0.3058,), (0.3761,)),
        DatasetInfo(
            "cifar10",
            (32, 32, 3),
            10,
            50_000,
            10_000,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
        ),
        DatasetInfo(
            "cifar100",
            (32, 32, 3),
            100,
            50_000,
            10_000,
            mean=(0.5071, 0.4865, 0.4409),
            std=(0.2673, 0.2564, 0.2762),
        ),
    )
}


def describe(name: str) -> DatasetInfo:
    """The shape and size of a data set, from its name alone: no file is opened.

    >>> describe("cifar100").num_classes
    100

    Args:
        name: one of digits, cifar10, cifar100.

    Raises:
        InputError: the name is unknown.
    """
    if name not in _KNOWN:
        raise unknown("data set", name, _KNOWN)
    return _KNOWN[name]
