"""A labeled image data set in memory, as four arrays."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np

from mimetic_jax.errors import InputError


@dataclasses.dataclass(frozen=True, eq=False)
class ImageDataset:
    """Train and test images with their labels, small enough to keep on the device.

    >>> images, labels = np.zeros((2, 4, 4, 1), np.uint8), np.array([0, 1], np.int32)
    >>> ImageDataset("dots", images, labels, images, labels, 2).image_shape
    (4, 4, 1)

    Args:
        name: name of the data set in configs and tables.
        train_images: uint8 [N, h, w, C].
        train_labels: int32 [N], each in [0, num_classes).
        test_images: uint8, of the same [h, w, C].
        test_labels: int32.
        num_classes: number of classes, those without examples included.

    Raises:
        InputError: the arrays contradict each other or this description.
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    num_classes: int

    def __post_init__(self) -> None:
        for split, images, labels in (
            ("train", self.train_images, self.train_labels),
            ("test", self.test_images, self.test_labels),
        ):
            self._check_split(f"{self.name} {split}", images, labels)
        if self.test_images.shape[1:] != self.image_shape:
            raise InputError(
                f"{self.name}: test images have shape {self.test_images.shape[1:]}, "
                f"train images {self.image_shape}"
            )

    def _check_split(self, split: str, images: np.ndarray, labels: np.ndarray) -> None:
        if images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
            raise InputError(
                f"{split} images are {images.dtype} of shape {images.shape}, "
                "expected uint8 of shape (examples, height, width, channels), none of them 0"
            )
        if labels.dtype != np.int32 or labels.shape != images.shape[:1]:
            raise InputError(
                f"{split} labels are {labels.dtype} of shape {labels.shape}, "
                f"expected int32 of shape {images.shape[:1]}"
            )
        if labels.min() < 0 or labels.max() >= self.num_classes:
            raise InputError(
                f"{split} labels run from {labels.min()} to {labels.max()}, "
                f"expected 0 to {self.num_classes - 1}"
            )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of one image."""
        _, height, width, channels = self.train_images.shape
        return height, width, channels

    def fingerprint(self) -> str:
        """Sixteen hex digits that change when any pixel, label or shape does.

        Recorded with results, to notice when numbers from different data are compared.
        """
        digest = hashlib.sha256()
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]
