"""Readers of data sets that are files of arrays, and of the one that comes installed.

A reader gives the train and the test split: images uint8 [N, h, w, C] and labels int32 [N].
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mimetic_jax.base.errors import InputError, error_text
from mimetic_jax.data.sets.dataset import DatasetInfo, Split


def read_digits() -> tuple[Split, Split]:
    """Scikit-learn's 8x8 digits, split into 1437 train and 360 test examples.

    The split is fixed: with the examples sorted by class, every fifth is a test example, so it has
    a fifth of each class, to within one example. Gray levels 0..16 become 0..255.
    """
    from sklearn.datasets import load_digits

    levels, labels = load_digits(return_X_y=True)
    images = np.rint(levels * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    labels = labels.astype(np.int32)
    is_test = np.zeros(len(labels), bool)
    is_test[np.argsort(labels, kind="stable")[::5]] = True
    return (images[~is_test], labels[~is_test]), (images[is_test], labels[is_test])


def read_arrays(path: Path, info: DatasetInfo) -> tuple[Split, Split]:
    """Return the arrays of both splits in a file of `data.download`: train_images, train_labels,
    test_….

    There may be fewer images than were published.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            train, test = (
                (file[f"{part}_images"], file[f"{part}_labels"].astype(np.int32, casting="safe"))
                for part in ("train", "test")
            )
    except Exception as error:  # of the zip file, of NumPy's format, of a name
        raise InputError(
            f"{path} of {path.stat().st_size} bytes can't be read as the arrays of {info.name} "
            f"({error_text(error)}): delete it, and download it again"
        ) from error
    for images, _ in (train, test):
        if images.shape[1:] != info.image_shape:
            raise InputError(
                f"{path} holds images of shape {images.shape[1:]}, expected {info.image_shape}"
            )
    return train, test
