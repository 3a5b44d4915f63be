"""Reads STL-10's binary files of labeled images."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from mimetic_jax.data.sets.info import DatasetInfo, Split
from mimetic_jax.errors import InputError


def read_binary(paths: tuple[Path, ...], info: DatasetInfo, published: int) -> Split:
    """The images and labels of one split, from its two binary files.

    Args:
        paths: the file of the pixels and that of the labels.
        info: the data set.
        published: examples in the published split.

    Returns:
        images uint8 [N, h, w, C] and labels int32 [N] from 0; those of the file start from 1.

    Raises:
        InputError: the files are cut off, or contradict each other.
    """
    path, label_path = paths
    pixels = np.fromfile(path, np.uint8)
    labels = np.fromfile(label_path, np.uint8)
    size = math.prod(info.image_shape)
    if len(pixels) % size or not len(pixels):
        raise InputError(
            f"{path} holds {len(pixels)} bytes, not a multiple of the {size} of an image: "
            f"expected {published * size} for {published} images; unpack the archive again"
        )
    if len(labels) != len(pixels) // size:
        raise InputError(
            f"{label_path} holds {len(labels)} labels for the "
            f"{len(pixels) // size} images of {path.name}"
        )
    if labels.min() < 1 or labels.max() > info.num_classes:
        raise InputError(
            f"{label_path} holds labels from {labels.min()} to {labels.max()}, "
            f"expected 1 to {info.num_classes}"
        )
    height, width, channels = info.image_shape
    # An image is one color plane after the other, each column by column.
    images = pixels.reshape(-1, channels, width, height).transpose(0, 3, 2, 1)
    return np.ascontiguousarray(images), labels.astype(np.int32) - 1
