"""SVHN, the cropped digits, from the original MATLAB files or from a TFDS folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mimetic_jax.data.files import array_record
from mimetic_jax.data.sets.dataset import ImageDataset
from mimetic_jax.data.sets.table import DatasetInfo, describe
from mimetic_jax.errors import InputError

_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


def load(data_dir: str | None) -> ImageDataset:
    """SVHN's cropped digits with the published split, without the extra images.

    Two forms are read, the first one found: train_32x32.mat and test_32x32.mat, lying in
    `data_dir`; and `data_dir/svhn_cropped/VERSION/` as TFDS prepares it with
    file_format="array_record" (no TensorFlow is needed to read that). TFDS shuffles what it writes:
    the examples are the same, their order and so the fingerprint and the runs aren't.

    Args:
        data_dir: the folder to look in; "~" is the home folder.

    Returns:
        The data, where label d is the digit d; the MATLAB files call the digit 0 class 10.

    Raises:
        InputError: no such data there, or a file of it is missing or damaged.
    """
    info = describe("svhn")
    sources = (
        f"download {' and '.join(_FILES.values())} from {info.source}, "
        f'or prepare {info.tfds} by TFDS with file_format="array_record"'
    )
    if not data_dir:
        raise InputError(
            f"svhn needs the folder that holds it (data_dir, or --config.data.dir=DIR): {sources}"
        )
    root = Path(data_dir).expanduser()
    present = [name for name in _FILES.values() if (root / name).is_file()]
    if len(present) == len(_FILES):
        splits = {
            "train": _read(root / _FILES["train"], info, info.num_train),
            "test": _read(root / _FILES["test"], info, info.num_test),
        }
    elif present:
        missing = [name for name in _FILES.values() if name not in present]
        raise InputError(f"{root} lacks {missing[0]} beside {present[0]}: {sources}")
    elif prepared := array_record.find(root, info.tfds):
        splits = array_record.read(prepared, info)
    else:
        raise InputError(
            f"no svhn in {data_dir}{'' if root.is_dir() else ' (no such folder)'}: looked for "
            f"{_FILES['train']} there, and for {info.tfds}/VERSION/dataset_info.json; {sources}"
        )
    return ImageDataset(
        name="svhn",
        train_images=splits["train"][0],
        train_labels=splits["train"][1],
        test_images=splits["test"][0],
        test_labels=splits["test"][1],
        num_classes=info.num_classes,
    )


def _read(path: Path, info: DatasetInfo, published: int) -> tuple[np.ndarray, np.ndarray]:
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=("X", "y"))
        pixels, labels = content["X"], content["y"].ravel()
    except Exception as error:  # Damaged bytes make loadmat fail in almost any way there is.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"{path} can't be read as a file of svhn ({reason}): found {path.stat().st_size} "
            f"bytes, expected the pixels X and labels y of {published} images; download it again"
        ) from error
    if pixels.dtype != np.uint8 or pixels.shape[:-1] != info.image_shape or not pixels.shape[-1]:
        raise InputError(
            f"{path} holds pixels of form {pixels.dtype} {pixels.shape}, "
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
