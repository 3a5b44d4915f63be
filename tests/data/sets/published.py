"""Made-up files in the published form of each data set of arrays, and how bad ones are refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from mimetic_jax.data import describe, load_dataset
from tests.data import made

NAMES = ("cifar10", "cifar100")
EACH = 6
"""Images per file."""


def refused(name: str, data_dir: Path | None, *words: str) -> None:
    """Loading it raises an error of one line that has all the words."""
    made.refused(lambda: load_dataset(name, data_dir and str(data_dir)), *words)


def made_up(name: str, file: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [6, h, w, 3] and labels from 0 of a file that holds images."""
    info = describe(name)
    rng = np.random.default_rng(len(file) + ord(file[-1]))
    shape = (EACH, *info.image_shape)
    return rng.integers(0, 256, shape, np.uint8), rng.integers(0, info.num_classes, EACH)


def splits(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """What the train and the test files hold."""
    found = []
    for files in describe(name).files:
        parts = [made_up(name, file) for file in files]
        found.append(tuple(np.concatenate(part) for part in zip(*parts, strict=True)))
    return found


def write(name: str, folder: Path, **changes: Any) -> None:
    """Write all files; `changes` replace arrays of the last training file, as it stores them."""
    folder.mkdir(parents=True, exist_ok=True)
    train, test = describe(name).files
    for file in (*train, *test):
        replaced = changes if file == train[-1] else {}
        images, labels = made_up(name, file)
        key = b"fine_labels" if name == "cifar100" else b"labels"
        content = {
            b"data": images.transpose(0, 3, 1, 2).reshape(EACH, -1),  # plane by plane
            key: labels.tolist(),
            b"coarse_labels": [0] * EACH,
        }
        replaced = {field.encode(): value for field, value in replaced.items()}
        (folder / file).write_bytes(pickle.dumps(drop(content | replaced), protocol=4))


def drop(content: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in content.items() if value is not None}
