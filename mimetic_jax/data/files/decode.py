"""Decodes images to RGB pixels, on the host."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mimetic_jax.base.errors import InputError, error_text

if TYPE_CHECKING:
    from PIL import Image

# Others of Pillow's run programs (EPS), or are no images to train on.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")


def decode(data: bytes, name: str = "image", *, reduction: int = 1) -> np.ndarray:
    """Decode a JPEG, PNG or other image file: uint8 [h, w, 3].

    The same pixels as `PIL.Image.open(...).convert("RGB")`, bit for bit: gray and CMYK become RGB,
    transparency is dropped and EXIF orientation ignored, as ImageFolder loaders do. Two
    differences: 16-bit gray, and a PGM of more than 8 bits, is scaled to 8 bits, where Pillow clips
    it; gray of 32 bits is refused, because its range is unknown. JPEGs are decoded by OpenCV, which
    is faster and releases Python's lock; its own thread pool is off.

    Args:
        data: the file's bytes.
        name: the image's name in errors.
        reduction: 1, 2 or 4: decode a gray or RGB JPEG to 1 / reduction of its height and width,
            rounded up, at less cost. Other images come at full size.

    Raises:
        InputError: the data are no image, a damaged or truncated one, one of 32-bit gray, or one of
            more pixels than Pillow or OpenCV decode.
    """
    if jpeg_shape(data):
        cv2 = opencv()
        # Despite "GRAYSCALE" these flags only reduce; IMREAD_REDUCED_COLOR_2 would set BGR as well.
        halved, quartered = cv2.IMREAD_REDUCED_GRAYSCALE_2, cv2.IMREAD_REDUCED_GRAYSCALE_4
        reduced = {1: 0, 2: halved, 4: quartered}[reduction]
        flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION | reduced
        try:
            pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        except cv2.error:
            pixels = None
        if pixels is not None:
            return pixels
    return _decode_by_pillow(data, name)


def jpeg_shape(data: bytes) -> tuple[int, int] | None:
    """Height and width from the header of a complete gray or RGB JPEG; None for anything else.

    "Complete" means that an end marker follows: some decoders fill missing rows with gray.
    """
    if data[:3] != b"\xff\xd8\xff":
        return None
    at = 2
    while at + 10 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker <= 0x01 or 0xD0 <= marker <= 0xD9:  # no length follows: decoders differ on these
            return None
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # start of frame
            height = int.from_bytes(data[at + 5 : at + 7], "big")
            width = int.from_bytes(data[at + 7 : at + 9], "big")
            whole = data.rfind(b"\xff\xd9", at) > 0
            good = height and width and data[at + 9] in (1, 3) and whole
            return (height, width) if good else None
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


@functools.cache
def opencv() -> Any:
    """The module cv2, with its thread pool off."""
    import cv2

    cv2.setNumThreads(1)
    return cv2


def _decode_by_pillow(data: bytes, name: str) -> np.ndarray:
    with _opened(data, name) as file:
        image: Image.Image = file
        if image.mode == "F" or (image.mode == "I" and file.format == "TIFF"):
            raise InputError(
                f"{name} can't be decoded (32-bit gray has no known range: convert it to 8 or "
                "16 bits)"
            )
        if image.mode.startswith("I"):  # Pillow scales PGMs of any number of bits to 16.
            gray = (np.asarray(image) >> 8).astype(np.uint8)
            return np.repeat(gray[:, :, None], 3, axis=2)
        if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
            image = image.convert("RGBA")  # Pillow warns if it converts straight to RGB.
        return np.asarray(image.convert("RGB"))


def check_image(data: bytes, name: str) -> None:
    """Check, as far as possible without decoding, that these are the bytes of an image."""
    if not jpeg_shape(data):
        with _opened(data, name) as file:
            file.verify()


@contextlib.contextmanager
def _opened(data: bytes, name: str) -> Iterator[Image.Image]:
    """Opens an image in Pillow; what that raises, also in the block, names the image."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as file:
            yield file
    except InputError:
        raise
    except Exception as error:  # Damaged bytes raise almost any exception in Pillow.
        reason = error_text(error)
        if isinstance(error, UnidentifiedImageError):
            reason = f"no known image format in its {len(data)} bytes"
        raise InputError(f"{name} can't be decoded ({reason}): mend it or remove it") from error
