"""Time decoding and cropping of images: ours against a Pillow loop, and one thread against two.

    python -m benchmarks.input [--folder=FOLDER] [--size=224] [--seconds=2]

Without a folder of JPEGs, it makes 500x375 images with the spectrum of photographs, at quality 90.
Crops are counted per second of processor time, which other load on the machine doesn't change.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from mimetic_jax.data.feed.order import TrainOrder
from mimetic_jax.data.feed.streamed import batches, train_example
from mimetic_jax.data.files.class_folders import FileSource
from mimetic_jax.data.files.views import View, eval_view, random_crop, train_view


def photograph(seed: int) -> bytes:
    """A JPEG of 1/f noise."""
    from PIL import Image

    height, width = 375, 500
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None]
    amplitude = 1 / np.maximum(np.hypot(rows, columns), 1 / width)
    gray, *colors = (
        np.fft.irfft2(np.fft.rfft2(noise) * amplitude, (height, width))
        for noise in np.random.default_rng(seed).normal(size=(4, height, width))
    )
    pixels = np.stack([gray + 0.3 * color for color in colors], axis=2)
    levels = np.clip(128 + 55 * pixels / pixels.std(), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(levels).save(file, "JPEG", quality=90)
    return file.getvalue()


def pillow_view(data: bytes, size: int, rng: np.random.Generator) -> np.ndarray:
    """The same crop with Pillow alone."""
    from PIL import Image

    image = Image.open(io.BytesIO(data)).convert("RGB")
    top, left, height, width = random_crop(
        rng, image.height, image.width, View(size).scale, View(size).ratio
    )
    box = (left, top, left + width, top + height)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))


def pillow_center(data: bytes, size: int) -> np.ndarray:
    """The evaluation view with Pillow alone."""
    from PIL import Image

    image = Image.open(io.BytesIO(data)).convert("RGB")
    scale = int(size / 0.875) / min(image.size)
    resized = image.resize((int(image.width * scale), int(image.height * scale)))
    left, top = (resized.width - size) // 2, (resized.height - size) // 2
    return np.asarray(resized.crop((left, top, left + size, top + size)))


def rate(function: Callable[[bytes, int], object], encoded: list[bytes], seconds: float) -> float:
    """Images per second of processor time."""
    began, count = time.process_time(), 0
    while time.process_time() - began < seconds:
        function(encoded[count % len(encoded)], count)
        count += 1
    return count / (time.process_time() - began)


def stream_rates(
    images: FileSource, size: int, threads: int, seconds: float
) -> tuple[float, float]:
    """Images per second of wall time through the whole input stream, and the cores it uses."""
    order = TrainOrder(len(images), len(images), 1, jax.random.key(0))
    example = functools.partial(train_example, images, order, View(size), 0)
    stream = batches(example, range(100_000), range(len(images)), threads)
    with contextlib.closing(stream):
        next(stream)
        began, processor, count = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - began < seconds:
            count += len(next(stream)[1])
        wall = time.perf_counter() - began
        return count / wall, (time.process_time() - processor) / wall


def main() -> None:
    """Measure a folder, or images that are made for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, help="a folder with *.JPEG to decode")
    parser.add_argument("--size", type=int, default=224, help="side of the crops in pixels")
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if not flags.folder:
            flags.folder = Path(made)
            for seed in range(64):
                (flags.folder / f"{seed}.JPEG").write_bytes(photograph(seed))
        measure(flags.folder, flags.size, flags.seconds)


def measure(folder: Path, size: int, seconds: float) -> None:
    """Print one line per measurement."""
    files = tuple(str(path) for path in sorted(folder.rglob("*.JPEG"))[:128])
    images = FileSource(folder, files, np.zeros(len(files), np.int32), ("",))
    encoded = [images.read(index)[0] for index in range(len(images))]
    kilobytes = sum(map(len, encoded)) / len(encoded) / 1000
    print(f"{len(encoded)} JPEGs of {kilobytes:.0f} kB, crops of {size} pixels")
    for name, theirs, ours in (
        (
            "random crop",
            lambda data, n: pillow_view(data, size, np.random.default_rng(n)),
            lambda data, n: train_view(View(size), data, np.random.default_rng(n)),
        ),
        (
            "center",
            lambda data, n: pillow_center(data, size),
            lambda data, n: eval_view(View(size, 0.875), data),
        ),
    ):
        baseline, measured = (rate(one, encoded, seconds) for one in (theirs, ours))
        print(
            f"{name:<20}{measured:7.0f} images/s per core, Pillow {baseline:.0f}, "
            f"ratio {measured / baseline:.2f}"
        )
    single = 0.0
    for threads in (1, 2):
        measured, cores = stream_rates(images, size, threads, seconds)
        single = single or measured
        print(
            f"{f'stream, {threads} thread(s)':<20}{measured:7.0f} images/s, "
            f"{measured / single:.2f} times one thread, {cores:.2f} cores busy"
        )


if __name__ == "__main__":
    main()
