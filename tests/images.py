"""Small images in folders, for tests that read them from a disk."""

import pathlib

import numpy as np
from PIL import Image


def class_folders(root: pathlib.Path, each: int, *names: str, side: int = 9) -> pathlib.Path:
    """So many plain images of each class, a dark one and brighter ones, all different."""
    for label, name in enumerate(names or ("dark", "light")):
        (root / name).mkdir(parents=True)
        for number in range(each):
            color = (100 * label, number, 0)
            Image.new("RGB", (side, side), color).save(root / name / f"{number}.png")
    return root


def imagenet(root: pathlib.Path) -> pathlib.Path:
    """Two classes, dark and bright: 20 images of `train` and 11 of `val`, of several sizes."""
    random = np.random.default_rng(0)
    for split, count in (("train", 20), ("val", 11)):
        for index in range(count):
            label = index % 2
            path = root / split / f"class_{label}" / f"{index}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            height, width = random.integers(40, 90, 2)
            pixels = random.integers(0, 100, (height, width, 3)) + 150 * label
            Image.fromarray(pixels.astype(np.uint8)).save(path, quality=90)
    return root
