"""Sizes, weights and images of the golden logits of the Swin transformers, by rules."""

import zlib
from typing import Any

import numpy as np

CASES: dict[str, dict[str, Any]] = {
    # The published grids. One window covers the last, where the second block still shifts it.
    "cifar": {
        "image": (32, 32),
        "fields": {
            "form": "cifar",
            "width": 8,
            "depths": (2, 0, 0, 2),
            "downscaling": (2, 2, 2, 1),
            "head_dim": 4,
            "window": 4,
        },
    },
    # Grids of 12x6 and 6x3 tokens: the second stage has windows as wide as the grid, not shifted.
    "microsoft": {
        "image": (24, 12),
        "fields": {
            "form": "microsoft",
            "width": 8,
            "depths": (3, 2),
            "downscaling": (2, 2),
            "head_dim": 4,
            "window": 3,
        },
    },
}
CLASSES = 5


def weight(path: str, shape: tuple[int, ...]) -> np.ndarray:
    """A parameter of our Swin by its path: normal, of scale 1 for tables of position biases."""
    drawn = np.random.default_rng(zlib.crc32(path.encode())).normal(size=shape)
    if not path.endswith(("relative_bias", "shared_bias")):
        drawn = 0.3 * drawn + path.endswith("scale")
    return drawn.astype(np.float32)


def images(case: str) -> np.ndarray:
    """Two images [2, h, w, 3] of white noise."""
    return np.random.default_rng(0).normal(size=(2, *CASES[case]["image"], 3)).astype(np.float32)
