"""The facts of a data set that are known without loading it, and the function that reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

Split = tuple[np.ndarray, np.ndarray]  # images uint8 [N, h, w, C], labels int32 [N]


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Shape, published size and origin of a data set.

    Args:
        name: the name that `load_dataset` takes.
        image_shape: height, width and channels of one image; of a streamed set, whose images differ
            in size, the shape they are resized to.
        num_classes: number of classes.
        num_train: training examples.
        num_test: test examples.
        mean: per channel, over the training images, with white as 1; ImageNet's where the published
            recipes normalize by that.
        std: standard deviation per channel, likewise.
        source: where the files come from.
        tfds: its name in TFDS; "" if TFDS doesn't have it.
        splits: the splits used as train and test examples, in TFDS notation.
        folder: the name of the published folder or archive, where that isn't `name`.
        manual: the files that TFDS can't download, because their owner asks for an account.
        streamed: read from disk while training, instead of held in memory.
        read: (info, data_dir) → the train and the test split; None for image files that
            `open_source` finds.
    """

    name: str
    image_shape: tuple[int, int, int]
    num_classes: int
    num_train: int
    num_test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: str
    tfds: str = ""
    splits: tuple[str, str] = ("train", "test")
    folder: str = ""
    manual: tuple[str, ...] = ()
    streamed: bool = False
    read: Callable[[DatasetInfo, str | None], tuple[Split, Split]] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )

    def __str__(self) -> str:
        return (
            f"{self.name}, {self.num_train:,} train and {self.num_test:,} test images of "
            f"{self.image_shape}, {self.num_classes} classes"
        )
