"""Decoding: Pillow's pixels for every kind of file, and a plain error for a damaged one."""

import functools
import io
import sys

import numpy as np
import pytest
from PIL import Image

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.files.decode import decode, jpeg_shape
from tests.data import made

RNG = np.random.default_rng(0)
PHOTO = np.add.outer(np.arange(41) * 3, np.arange(58) * 2)[:, :, None] + RNG.integers(0, 40, 3)
PHOTO = np.clip(PHOTO, 0, 255).astype(np.uint8)


photo = functools.partial(made.encode, PHOTO)

FILES = {
    "JPEG": photo("JPEG"),
    "progressive JPEG": photo("JPEG", progressive=True, subsampling=0),
    "gray JPEG": photo("JPEG", "L"),
    "CMYK JPEG": photo("JPEG", "CMYK"),
    "JPEG with restart markers": photo("JPEG", restart_marker_rows=1),
    "PNG": photo("PNG"),
    "gray PNG": photo("PNG", "L"),
    "PNG with alpha": photo("PNG", "RGBA"),
    "PNG with palette": photo("PNG", "P"),
    "PNG with transparent palette": photo("PNG", "P", transparency=bytes(range(256))),
    "black and white PNG": photo("PNG", "1"),
    "WebP": photo("WEBP", lossless=True),
    "BMP": photo("BMP"),
}


@pytest.mark.parametrize("kind", FILES)
def test_pixels_are_those_of_pillow(kind: str) -> None:
    pixels = decode(FILES[kind])
    assert pixels.dtype == np.uint8
    if "transparent" in kind:  # Pillow itself warns here.
        expected = np.asarray(Image.open(io.BytesIO(FILES[kind])).convert("RGBA").convert("RGB"))
    else:
        expected = np.asarray(made.decoded(FILES[kind]))
    assert np.array_equal(pixels, expected)


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_orientation_is_ignored(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert np.array_equal(decode(photo("JPEG", exif=exif)), decode(photo("JPEG")))


def test_sixteen_bit_gray_is_scaled() -> None:
    levels = np.array([[0, 255, 256], [32768, 65279, 65535]], np.uint16)
    data = made.encode(levels, "PNG")
    assert decode(data)[:, :, 1].tolist() == [[0, 0, 1], [128, 254, 255]]
    assert decode(data).shape == (2, 3, 3)


@pytest.mark.parametrize("most", [300, 1023, 4095, 65535])
@pytest.mark.parametrize("form", ["P2", "P5"])
def test_a_pgm_of_more_than_8_bits_is_scaled(form: str, most: int) -> None:
    levels = np.linspace(0, most, 600).round().astype(">u2").reshape(20, 30)
    numbers = levels.tobytes() if form == "P5" else " ".join(map(str, levels.flat)).encode()
    pixels = decode(f"{form}\n30 20\n{most}\n".encode() + numbers)
    assert (pixels == pixels[:, :, :1]).all()
    assert np.abs(pixels[:, :, 0] - levels * (255 / most)).max() < 1


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_32_bit_gray_is_refused(dtype: type) -> None:
    data = made.encode(np.ones((4, 5), dtype), "TIFF")
    with pytest.raises(
        InputError, match=r"a\.tif can't be decoded \(32-bit gray has no known range"
    ):
        decode(data, "a.tif")


@pytest.mark.parametrize("reduction", [2, 4])
@pytest.mark.parametrize("kind", ["JPEG", "gray JPEG"])
def test_a_reduced_jpeg_is_the_average_of_the_whole(kind: str, reduction: int) -> None:
    """Within the few levels by which the DCT's low-pass filter differs from a box."""
    whole = decode(FILES[kind])
    pixels = decode(FILES[kind], reduction=reduction)
    height, width = (length // reduction for length in whole.shape[:2])
    assert pixels.shape == (*(-(-length // reduction) for length in whole.shape[:2]), 3)
    cut = whole[: height * reduction, : width * reduction].astype(float)
    means = cut.reshape(height, reduction, width, reduction, 3).mean((1, 3))
    assert np.abs(pixels[:height, :width] - means).mean() < 3


def test_the_header_of_a_jpeg_that_is_decoded_reduced_gives_its_shape() -> None:
    for kind in ("JPEG", "progressive JPEG", "gray JPEG"):
        assert jpeg_shape(FILES[kind]) == PHOTO.shape[:2]
    for kind in ("CMYK JPEG", "PNG", "WebP"):
        assert jpeg_shape(FILES[kind]) is None


@pytest.mark.parametrize("kind", ["JPEG", "gray JPEG", "CMYK JPEG", "PNG"])
@pytest.mark.parametrize("kept", [0.0, 0.02, 0.3, 0.6])
def test_a_truncated_file_is_named(kind: str, kept: float) -> None:
    data = FILES[kind]
    with pytest.raises(InputError, match=r"cat\.JPEG can't be decoded") as caught:
        decode(data[: int(kept * len(data))], "cat.JPEG")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8\xff", b"<html>404</html>", b"\xff\xd8\xff\xe0" + bytes(50)]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    assert jpeg_shape(data) is None
    with pytest.raises(InputError, match=f"no known image format in its {len(data)} bytes"):
        decode(data)


def test_no_program_is_run_for_an_image() -> None:
    """Pillow calls Ghostscript for PostScript."""
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(%pipe%id)\n"
    with pytest.raises(InputError, match="no known image format"):
        decode(postscript, "a.jpg")


def test_an_image_beyond_pillows_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", PHOTO.shape[0] * PHOTO.shape[1] // 3)
    with pytest.raises(InputError, match=r"a\.png can't be decoded \(.*exceeds limit"):
        decode(FILES["PNG"], "a.png")


def test_opencv_starts_no_threads() -> None:
    decode(FILES["JPEG"])
    assert sys.modules["cv2"].getNumThreads() == 1
