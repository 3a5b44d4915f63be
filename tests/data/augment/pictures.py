"""Images for operations to change: made up, and photographs where a folder of them is there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def photographs(count: int = 8, height: int = 200, width: int = 240) -> np.ndarray:
    """The top left of the first JPEGs of a folder that are large enough."""
    folder = os.environ.get("MIMETIC_IMAGENET_SAMPLE")
    if not folder:
        pytest.skip("MIMETIC_IMAGENET_SAMPLE isn't set")
    found: list[np.ndarray] = []
    for path in sorted(Path(folder).rglob("*.JPEG")):
        pixels = np.asarray(Image.open(path).convert("RGB"))
        if pixels.shape[0] >= height and pixels.shape[1] >= width:
            found.append(pixels[:height, :width])
        if len(found) == count:
            break
    return np.stack(found)


def pictures(height: int = 40, width: int = 48) -> np.ndarray:
    """A gradient, noise, hard edges, 1/f noise, low contrast, one level, and an empty channel."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:height, :width]
    gradient = np.stack([rows * 5, columns * 4, (rows + columns) * 2], axis=-1) % 256
    noise = rng.integers(0, 256, (height, width, 3))
    edges = np.repeat(((rows // 3 + columns // 5) % 2 * 220 + 20)[..., None], 3, axis=-1)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)) + 0.01
    spectrum = np.fft.fft2(rng.normal(size=(3, height, width))) / frequency
    natural = np.fft.ifft2(spectrum).real.transpose(1, 2, 0)
    natural = np.clip(natural / natural.std() * 50 + 120, 0, 255)
    dull = natural // 4 + 60
    flat = np.full_like(noise, 77)
    lopsided = natural * np.array([1, 0.2, 0])
    every = (gradient, noise, edges, natural, dull, flat, lopsided)
    return np.stack(every).astype(np.uint8)
