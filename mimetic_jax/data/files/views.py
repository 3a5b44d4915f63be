"""Decodes images to RGB pixels, and crops them: at random in training, the center in evaluation."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mimetic_jax.base.errors import InputError, error_text

if TYPE_CHECKING:
    from PIL import Image

# Others of Pillow's run programs (EPS), or are no images to train on.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")


@dataclasses.dataclass(frozen=True)
class CropSpec:
    """How images are cropped: at random in training, to the center in evaluation.

    Args:
        size: s, side of the result in pixels; may exceed the image's.
        fraction: size over the resized shorter side, of the center; 0.875 is 224 of 256.
        scale: least and greatest area of a crop, as parts of the image's.
        ratio: least and greatest width / height of a crop.
        interpolation: that of crops: "bilinear", "bicubic", or "random" for either.
        upright: whether images are turned as their EXIF orientation says, as viewers show them.
            ImageFolder loaders, with which published accuracies were reached, ignore it.
        channels: C of what is held in memory: 3, or 1 of a set whose images are all gray.
    """

    size: int
    fraction: float = 1.0
    scale: tuple[float, ...] = (0.08, 1.0)
    ratio: tuple[float, ...] = (3 / 4, 4 / 3)
    interpolation: str = "bilinear"
    upright: bool = False
    channels: int = 3


def host_crop(
    rng: np.random.Generator,
    height: int,
    width: int,
    scale: tuple[float, ...],
    ratio: tuple[float, ...],
) -> tuple[int, int, int, int]:
    """Draw top, left, height and width of the box of torchvision's RandomResizedCrop, on the host.

    Up to ten times: area ~ U(scale) · h · w and log(w'/h') ~ U(log ratio), until the box fits.
    After that the largest central box with a ratio in range.

    Reference:
        Szegedy et al. 2015, "Going deeper with convolutions"; torchvision.transforms.v2.
    """
    for _ in range(10):
        area = height * width * (scale[0] + rng.random() * (scale[1] - scale[0]))
        low, high = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(low + rng.random() * (high - low))
        crop_width, crop_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top = int(rng.random() * (height - crop_height + 1))
            left = int(rng.random() * (width - crop_width + 1))
            return top, left, crop_height, crop_width
    crop_width = min(width, max(1, round(height * ratio[1])))
    crop_height = min(height, max(1, round(width / ratio[0])))
    return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width


def train_view(
    view: CropSpec, data: bytes, rng: np.random.Generator, name: str = "image"
) -> np.ndarray:
    """Crop an image at random, and resize it to a square: uint8 [s, s, 3].

    A box that shrinks by more than a tenth is averaged over areas, whatever the interpolation, so
    there is no aliasing; one that shrinks in one direction and grows in the other, as 300x220
    pixels do to 224, is interpolated in both. JPEGs are decoded at half or quarter size if the
    box stays at least as large as the result. The mean difference from Pillow's bilinear, on
    ImageNet files, is 0.6 of 255 levels at 224 pixels and 2.9 at 64; Pillow's own bicubic differs
    by 1.2 and 1.5.
    """
    shape = jpeg_shape(data, view.upright)
    pixels = None if shape else decode(data, name, upright=view.upright)
    full_height, full_width = shape if pixels is None else pixels.shape[:2]  # type: ignore[misc]
    top, left, height, width = host_crop(rng, full_height, full_width, view.scale, view.ratio)
    cubic = view.interpolation == "bicubic"
    if view.interpolation == "random":
        cubic = rng.random() < 0.5
    if pixels is None:
        surplus = min(height, width) // view.size
        reduction = 4 if surplus >= 4 else 2 if surplus >= 2 else 1
        pixels = decode(data, name, reduction=reduction, upright=view.upright)
    if pixels.shape[0] < full_height:
        down, across = pixels.shape[0] / full_height, pixels.shape[1] / full_width
        bottom, right = round((top + height) * down), round((left + width) * across)
        top, left = round(top * down), round(left * across)
        height, width = bottom - top, right - left
    return _resize(pixels[top : top + height, left : left + width], view.size, cubic)


def _resize(pixels: np.ndarray, size: int, cubic: bool) -> np.ndarray:
    cv2 = opencv()
    shortest, longest = min(pixels.shape[:2]), max(pixels.shape[:2])
    if shortest < size or 10 * longest <= 11 * size:
        method = cv2.INTER_CUBIC if cubic else cv2.INTER_LINEAR
        return cv2.resize(pixels, (size, size), interpolation=method)
    if longest <= 4 * size:  # Half the time of averaging directly, and closer to Pillow.
        pixels = cv2.resize(pixels, (2 * size, 2 * size), interpolation=cv2.INTER_LINEAR)
    return cv2.resize(pixels, (size, size), interpolation=cv2.INTER_AREA)


def eval_view(view: CropSpec, data: bytes, name: str = "image") -> np.ndarray:
    """Crop the center, uint8 [s, s, 3], after the shorter side is resized to floor(s / fraction).

    The pixels of torchvision's Resize, bicubic, and CenterCrop on Pillow images, bit for bit:
    published accuracies depend on them.
    """
    from PIL import Image

    pixels, size = decode(data, name, upright=view.upright), view.size
    height, width = pixels.shape[:2]
    shorter = math.floor(size / view.fraction)
    if height <= width:
        height, width = shorter, int(shorter * width / height)
    else:
        height, width = int(shorter * height / width), shorter
    resized = Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)
    top, left = round((height - size) / 2), round((width - size) / 2)
    return np.ascontiguousarray(np.asarray(resized)[top : top + size, left : left + size])


def decode(
    data: bytes, name: str = "image", *, reduction: int = 1, upright: bool = False
) -> np.ndarray:
    """Decode a JPEG, PNG or other image file: uint8 [h, w, 3].

    The same pixels as `PIL.Image.open(...).convert("RGB")`, bit for bit, turned as their EXIF
    orientation says if they become `upright`: gray and CMYK become RGB, transparency is dropped.
    Two differences: 16-bit gray, and a PGM of more than 8 bits, is scaled to 8 bits, where Pillow
    clips it; gray of 32 bits raises InputError, because its range is unknown. JPEGs that needn't
    be turned are decoded by OpenCV, which is faster and releases Python's lock; its own thread pool
    is off.

    A `reduction` of 2 or 4 decodes what `jpeg_shape` knows to a half or a quarter of its height and
    width, rounded up, at less cost. Other images come at full size.
    """
    if jpeg_shape(data, upright):
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
    return _decode_by_pillow(data, name, upright)


def jpeg_shape(data: bytes, upright: bool = False) -> tuple[int, int] | None:
    """Height and width from the header of a complete gray or RGB JPEG; None for anything else, and
    for one that is to be turned to become `upright`.

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
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if upright and marker == 0xE1 and _may_turn(data[at + 4 : end]):
            return None
        at = end
    return None


def _may_turn(segment: bytes) -> bool:
    """Whether metadata of a JPEG, EXIF or XMP, has an orientation that Pillow could turn it by."""
    from PIL import ExifTags, Image

    if not segment.startswith(b"Exif"):
        return b"tiff:Orientation" in segment
    exif = Image.Exif()
    with contextlib.suppress(Exception):  # damaged: it turns nothing
        exif.load(segment)
    return exif.get(ExifTags.Base.Orientation, 1) != 1


@functools.cache
def opencv() -> Any:
    """Return the module cv2, with its thread pool off."""
    import cv2

    cv2.setNumThreads(1)
    return cv2


def _decode_by_pillow(data: bytes, name: str, upright: bool) -> np.ndarray:
    from PIL import ImageOps

    with _opened(data, name) as file:
        image: Image.Image = file
        image.load()
        if upright:
            with contextlib.suppress(Exception):  # damaged metadata turn nothing
                ImageOps.exif_transpose(image, in_place=True)
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
    """Check that these are the bytes of an image, decoding only JPEGs of other kinds than most."""
    if not jpeg_shape(data):
        with _opened(data, name) as file:
            file.load() if file.format in ("JPEG", "MPO") else file.verify()


def color(data: bytes) -> str:
    """Name the color that becomes RGB, "gray" or "CMYK"; "" for others and damaged images."""
    with contextlib.suppress(InputError), _opened(data, "") as file:
        gray = file.mode.startswith(("1", "L", "I", "F"))
        return "gray" if gray else "CMYK" if file.mode == "CMYK" else ""
    return ""


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
        raise InputError(f"{name} can't be decoded ({reason})") from error
