"""Photographs of ImageNet, where a tar of them is there."""

from __future__ import annotations

import io
import os
import tarfile

import numpy as np
import pytest
from PIL import Image


def photographs(count: int = 8, height: int = 200, width: int = 240) -> np.ndarray:
    """The top left of the first JPEGs of a tar that are large enough."""
    path = os.environ.get("MIMETIC_IMAGENET_SAMPLE_TAR")
    if not path:
        pytest.skip("MIMETIC_IMAGENET_SAMPLE_TAR isn't set")
    found: list[np.ndarray] = []
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and member.name.lower().endswith((".jpeg", ".jpg")):
                file = archive.extractfile(member)
                assert file is not None
                pixels = np.asarray(Image.open(io.BytesIO(file.read())).convert("RGB"))
                if pixels.shape[0] >= height and pixels.shape[1] >= width:
                    found.append(pixels[:height, :width])
            if len(found) == count:
                break
    return np.stack(found)
