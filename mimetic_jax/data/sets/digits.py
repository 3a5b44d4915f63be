"""The 1797 handwritten digits that come with scikit-learn: real data without a download."""

from __future__ import annotations

import numpy as np

from mimetic_jax.data.sets.info import DatasetInfo, Split


def read_digits(info: DatasetInfo, data_dir: str | None) -> tuple[Split, Split]:
    """Scikit-learn's 8x8 digits, split into 1437 train and 360 test examples.

    The split is fixed: with the examples sorted by class, every fifth is a test example, so it has
    a fifth of each class, to within one example. Gray levels 0..16 become 0..255. The arguments,
    which every reader takes, are ignored.
    """
    from sklearn.datasets import load_digits

    levels, labels = load_digits(return_X_y=True)
    images = np.rint(levels * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    labels = labels.astype(np.int32)
    is_test = np.zeros(len(labels), bool)
    is_test[np.argsort(labels, kind="stable")[::5]] = True
    return (images[~is_test], labels[~is_test]), (images[is_test], labels[is_test])
