"""Files as other programs write them, and how bad ones are refused."""

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.feed.order import TrainOrder


def refused(call: Callable[[], object], *words: str) -> str:
    """The error that a call raises, with these words in it."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    for word in words:
        assert word in message, message
    return message


def write(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    """The folder with these files in it."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def encode(pixels: np.ndarray, kind: str = "JPEG", mode: str = "", **options: Any) -> bytes:
    """An image file of Pillow's."""
    file, image = io.BytesIO(), Image.fromarray(pixels)
    quality = {"quality": 90} if kind == "JPEG" else {}
    (image.convert(mode) if mode else image).save(file, kind, **quality | options)
    return file.getvalue()


def decoded(data: bytes) -> Image.Image:
    """The image as Pillow reads it."""
    return Image.open(io.BytesIO(data)).convert("RGB")


def examples_of(order: TrainOrder, step: int) -> np.ndarray:
    """The examples of a step's global batch, row by row."""
    return np.array([order.index(step, row) for row in range(order.batch)])


def rectangle(marked: np.ndarray) -> tuple[int, int, int, int]:
    """Top, left, height and width of what is marked, which must be a whole rectangle."""
    rows, columns = np.flatnonzero(marked.any(axis=1)), np.flatnonzero(marked.any(axis=0))
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    assert marked.sum() == height * width
    return rows[0], columns[0], height, width


def damage(path: Path, how: str, share: float) -> None:
    """Change four bytes at a share of a file, or cut it there."""
    content = bytearray(path.read_bytes())
    place = int(share * len(content))
    content[place : place + 4] = bytes(255 - byte for byte in content[place : place + 4])
    path.write_bytes(content if how == "changed" else content[:place])


SIZES = {"train": 7, "test": 3}
"""Examples of a data set of `prepare`."""


def split(name: str, size: int = 32, num_classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of one of its splits."""
    rng = np.random.default_rng(SIZES[name])
    images = rng.integers(0, 256, (SIZES[name], size, size, 3), np.uint8)
    return images, rng.integers(0, num_classes, SIZES[name])


def examples(images: np.ndarray, labels: np.ndarray) -> list[tuple[bytes, int]]:
    """Sorted by their pixels, because TFDS shuffles while it writes."""
    return sorted(
        (image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True)
    )


def prepare(
    named: str, root: Path, size: int = 32, num_classes: int = 10, version: str = "3.0.2"
) -> Path:
    """A data set under any name, written by a builder of TFDS's that needs no TensorFlow."""
    import tensorflow_datasets as tfds

    # TFDS knows a cifar10 of its own, which needs TensorFlow to prepare.
    with tfds.core.registered.skip_registration():

        class Builder(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version(version)
            name = named

            def _info(self) -> Any:
                features = {
                    "image": tfds.features.Image(shape=(size, size, 3)),
                    "label": tfds.features.ClassLabel(num_classes=num_classes),
                }
                return tfds.core.DatasetInfo(
                    builder=self, features=tfds.features.FeaturesDict(features)
                )

            def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
                return {part: self._generate_examples(part) for part in SIZES}

            def _generate_examples(self, part: str) -> Iterator[tuple[int, dict[str, Any]]]:
                of_part = zip(*split(part, size, num_classes), strict=True)
                for index, (image, label) in enumerate(of_part):
                    file = io.BytesIO(encode(image, "PNG"))
                    yield index, {"image": file, "label": int(label)}

    Builder(data_dir=root, file_format="array_record").download_and_prepare()
    return root / named / version


def photo(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Noise with the 1/f spectrum of photographs."""
    rng = np.random.default_rng(seed)
    rows, columns = np.fft.fftfreq(height)[:, None, None], np.fft.fftfreq(width)[None, :, None]
    amplitude = 1 / np.maximum(np.hypot(rows, columns), 1 / max(height, width))
    noise = np.fft.ifft2(
        np.fft.fft2(rng.normal(size=(height, width, 3)), axes=(0, 1)) * amplitude, axes=(0, 1)
    ).real
    return np.clip(128 + 45 * noise / noise.std(), 0, 255).astype(np.uint8)


def pictures(height: int = 40, width: int = 48) -> np.ndarray:
    """A gradient, noise, hard edges, 1/f noise, low contrast, one level, and an empty channel."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:height, :width]
    gradient = np.stack([rows * 5, columns * 4, (rows + columns) * 2], axis=-1) % 256
    noise = rng.integers(0, 256, (height, width, 3))
    edges = np.repeat(((rows // 3 + columns // 5) % 2 * 220 + 20)[..., None], 3, axis=-1)
    natural = photo(height, width)
    dull = natural // 4 + 60
    flat = np.full_like(noise, 77)
    lopsided = natural * np.array([1, 0.2, 0])
    every = (gradient, noise, edges, natural, dull, flat, lopsided)
    return np.stack(every).astype(np.uint8)
