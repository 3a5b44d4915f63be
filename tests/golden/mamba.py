"""Weights and tokens of the golden logits of a language model of Mamba2Simple layers, by rules."""

import zlib

import numpy as np

FIELDS = {"vocab": 11, "width": 12, "depth": 2, "heads": 4, "state": 5, "groups": 2}
"""Of our model; the layers' other sizes are the defaults of both."""


def tokens() -> np.ndarray:
    """[2, 21] int32."""
    return np.random.default_rng(0).integers(0, FIELDS["vocab"], (2, 21)).astype(np.int32)


def weight(path: str, shape: tuple[int, ...]) -> np.ndarray:
    """A parameter by its path in our model: normal, scales around 1, rates of change around ½."""
    drawn = np.random.default_rng(zlib.crc32(path.encode())).normal(size=shape)
    if path.endswith(("A_log", "dt_bias")):
        drawn = 0.5 * drawn - 0.7
    else:
        drawn = 0.3 * drawn + path.endswith("scale")
    return drawn.astype(np.float32)
