"""Reads SVHN's MATLAB files of cropped digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mimetic_jax.data.sets.info import DatasetInfo, Split
from mimetic_jax.errors import InputError


def read_matlab(paths: tuple[Path, ...], info: DatasetInfo, published: int) -> Split:
    """The images and labels of one split, from its MATLAB file.

    Args:
        paths: the one file.
        info: the data set.
        published: examples in the published split.

    Returns:
        images uint8 [N, h, w, C] and labels int32 [N], where label d is the digit d; the file calls
        the digit 0 class 10.

    Raises:
        InputError: the file can't be read, or contradicts itself.
    """
    (path,) = paths
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=("X", "y"))
        pixels, labels = content["X"], content["y"].ravel()
    except Exception as error:  # Damaged bytes raise almost any exception in loadmat.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"{path} can't be read as a file of svhn ({reason}): found {path.stat().st_size} "
            f"bytes, expected the pixels X and labels y of {published} images; download it again"
        ) from error
    if pixels.dtype != np.uint8 or pixels.shape[:-1] != info.image_shape or not pixels.shape[-1]:
        raise InputError(
            f"{path} holds pixels as {pixels.dtype} {pixels.shape}, "
            f"expected uint8 {(*info.image_shape, 'images')}"
        )
    if labels.dtype.kind not in "iu" or len(labels) != pixels.shape[-1]:
        raise InputError(
            f"{path} holds {labels.dtype} labels of shape {labels.shape} "
            f"for {pixels.shape[-1]} images"
        )
    if labels.min() < 1 or labels.max() > info.num_classes:
        raise InputError(
            f"{path} holds labels from {labels.min()} to {labels.max()}, "
            f"expected 1 to {info.num_classes}"
        )
    images = np.ascontiguousarray(pixels.transpose(3, 0, 1, 2))
    return images, (labels % info.num_classes).astype(np.int32)
