"""Weights, images and sizes of the golden arrays of the MLP-Mixer, the ConvMixer and the ConvNeXt.

The files hold outputs alone: both sides took their weights from `weights`, by the path that a
parameter has in our models, and their images from `images`.
"""

import zlib

import numpy as np

SIDE, PATCH, WIDTH, DEPTH, CLASSES = 16, 2, 6, 2, 5
"""Of every model here; its images are [3, 16, 16, 3]."""

FILTERS = (3, 8)
"""Filter sizes of the ConvMixers. The even one shows on which side "same" pads more."""


def weights(path: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values of one parameter or running statistic, as float32.

    Normal draws, in row-major order of our layout: kernels of standard deviation 1.5/√fan-in,
    scales around 1, biases and running means of .3, and log-normal running variances.
    """
    rng = np.random.default_rng(zlib.crc32(path.encode()))
    drawn = rng.normal(size=np.prod(shape)).reshape(shape)
    name = path.split("/")[-1]
    if name == "kernel":
        drawn *= 1.5 / np.prod(shape[:-1]) ** 0.5
    elif name == "var":
        drawn = np.exp(0.5 * drawn)
    else:
        drawn = 0.3 * drawn + (name == "scale")
    return drawn.astype(np.float32)


def images() -> np.ndarray:
    """[3, 16, 16, 3] float32."""
    return np.random.default_rng(0).normal(size=(3, SIDE, SIDE, 3)).astype(np.float32)
