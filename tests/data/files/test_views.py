"""Pillow's pixels for every kind of file, one line for a damaged one, and torchvision's crops."""

import functools
import io
import math
import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mimetic_jax.data.files.views import (
    CropSpec,
    check_image,
    color,
    decode,
    eval_view,
    host_crop,
    jpeg_shape,
    train_view,
)
from tests.data import made
from tests.data.made import decoded, encode, photo, refused

RATIO = (3 / 4, 4 / 3)


@given(st.integers(1, 700), st.integers(1, 700), st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_boxes_are_within_the_image(height, width, seed):
    rng = np.random.default_rng(seed)
    top, left, box_height, box_width = host_crop(rng, height, width, (0.08, 1.0), RATIO)
    assert min(top, left) >= 0
    assert min(box_height, box_width) >= 1
    assert top + box_height <= height
    assert left + box_width <= width


def test_boxes_have_the_right_distribution():
    """Area and log ratio uniform where every box fits; corners uniform over the rest."""
    rng = np.random.default_rng(1)
    boxes = np.array([host_crop(rng, 1000, 1000, (0.1, 0.5), RATIO) for _ in range(4000)])
    top, left, height, width = boxes.T
    area = (height * width / 1e6 - 0.1) / 0.4
    aspect = np.log(width / height) / math.log(4 / 3)
    for uniform in (area, (aspect + 1) / 2, top / (1000 - height), left / (1000 - width)):
        assert uniform.min() > -0.01
        assert uniform.max() < 1.01
        # Four standard errors of the mean and of the variance of 4000 uniform numbers.
        assert abs(uniform.mean() - 1 / 2) < 4 * math.sqrt(1 / 12 / 4000)
        assert abs(uniform.var() - 1 / 12) < 4 * math.sqrt(1 / 180 / 4000)
    assert abs(np.corrcoef(area, aspect)[0, 1]) < 4 / math.sqrt(4000)


def test_without_a_box_that_fits_the_center_is_cut():
    for size, box in (((10, 1000), (0, 493, 10, 13)), ((1000, 10), (493, 0, 13, 10))):
        assert host_crop(np.random.default_rng(0), *size, (0.9, 1.0), RATIO) == box


def test_a_crop_of_everything_is_the_image_resized():
    data = encode(photo(100, 100), "PNG")
    rng = np.random.default_rng(0)
    whole = train_view(CropSpec(100, scale=(1, 1), ratio=(1, 1)), data, rng)
    assert np.array_equal(whole, decoded(data))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("size", [40, 96, 160, 224])
def test_a_reduced_view_is_as_close_to_pillow_as_bicubic_is_to_bilinear(size, kind):
    """Also where a JPEG is decoded at half (160) or quarter (96, 40) size, to within twice that."""
    data = encode(photo(500, 500), kind)
    whole = CropSpec(size, scale=(1, 1), ratio=(1, 1))
    view = train_view(whole, data, np.random.default_rng(0))
    bilinear, bicubic = (
        np.asarray(decoded(data).resize((size, size), method)).astype(float)
        for method in (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)
    )
    assert np.abs(view - bilinear).mean() < 2 * np.abs(bicubic - bilinear).mean()


@pytest.mark.parametrize("size", [24, 60, 150, 224])
def test_the_view_shows_the_box(size):
    """An image of its own coordinates shows where each pixel comes from, at any reduction."""
    height, width = 300, 400
    rows, columns = np.mgrid[:height, :width]
    pixels = np.stack([rows * 255 / height, columns * 255 / width, 0 * rows], axis=2)
    data = encode(pixels.round().astype(np.uint8))
    centers = (np.arange(size) + 0.5) / size
    for seed in range(5):
        one, again = (np.random.default_rng(seed) for _ in range(2))
        top, left, box_height, box_width = host_crop(one, height, width, (0.3, 1.0), RATIO)
        view = train_view(CropSpec(size, scale=(0.3, 1)), data, again)
        expected = (top + box_height * centers) * 255 / height
        assert np.abs(view[:, :, 0].mean(1) - expected).max() < 3
        expected = (left + box_width * centers) * 255 / width
        assert np.abs(view[:, :, 1].mean(0) - expected).max() < 3


def test_random_interpolation_is_one_of_the_two():
    data = encode(photo(20, 20), "PNG")

    def view(interpolation: str, seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        return train_view(CropSpec(64, interpolation=interpolation), data, rng).tobytes()

    taken = []
    for seed in range(20):
        choices = [view("bilinear", seed), view("bicubic", seed)]
        taken.append(choices.index(view("random", seed)))
    assert set(taken) == {0, 1}


@pytest.mark.parametrize("shape", [(300, 400), (401, 299), (256, 256), (50, 90), (7, 3)])
def test_the_center_is_that_of_torchvision(shape):
    """Resize(256) then CenterCrop(224), written out in Pillow: bit for bit."""
    data = encode(photo(*shape))
    image = decoded(data)
    width, height = image.size
    wide = width > height
    size = (int(256 * width / height), 256) if wide else (256, int(256 * height / width))
    resized = image.resize(size, Image.Resampling.BICUBIC)
    left, top = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
    expected = resized.crop((left, top, left + 224, top + 224))
    view = eval_view(CropSpec(224, 0.875), data)
    assert view.shape == (224, 224, 3)
    assert np.array_equal(view, expected)


def test_one_pixel_is_enough():
    data = encode(np.full((1, 1, 3), 77, np.uint8), "PNG")
    assert (train_view(CropSpec(5), data, np.random.default_rng(0)) == 77).all()
    assert (eval_view(CropSpec(5, 0.9), data) == 77).all()


PHOTO = np.add.outer(np.arange(41) * 3, np.arange(58) * 2)[:, :, None] + np.array([34, 25, 20])
PHOTO = np.clip(PHOTO, 0, 255).astype(np.uint8)
encoded = functools.partial(encode, PHOTO)

FILES = {
    "JPEG": encoded("JPEG"),
    "progressive JPEG": encoded("JPEG", progressive=True, subsampling=0),
    "gray JPEG": encoded("JPEG", "L"),
    "CMYK JPEG": encoded("JPEG", "CMYK"),
    "JPEG with restart markers": encoded("JPEG", restart_marker_rows=1),
    "PNG": encoded("PNG"),
    "gray PNG": encoded("PNG", "L"),
    "PNG with alpha": encoded("PNG", "RGBA"),
    "PNG with palette": encoded("PNG", "P"),
    "PNG with transparent palette": encoded("PNG", "P", transparency=bytes(range(256))),
    "black and white PNG": encoded("PNG", "1"),
    "WebP": encoded("WEBP", lossless=True),
    "BMP": encoded("BMP"),
}


@pytest.mark.parametrize("kind", FILES)
def test_pixels_are_those_of_pillow(kind):
    pixels = decode(FILES[kind])
    assert pixels.dtype == np.uint8
    decoded_reduced = "JPEG" in kind and "CMYK" not in kind
    assert jpeg_shape(FILES[kind]) == (PHOTO.shape[:2] if decoded_reduced else None)
    if "transparent" in kind:  # Pillow itself warns here.
        expected = np.asarray(Image.open(io.BytesIO(FILES[kind])).convert("RGBA").convert("RGB"))
    else:
        expected = np.asarray(made.decoded(FILES[kind]))
    assert np.array_equal(pixels, expected)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_are_upright(kind, orientation):
    """Seen through any view; the turns are those that the standard lists, in NumPy."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    data, stored = encoded(kind, exif=exif), decode(encoded(kind))
    shown = stored.swapaxes(0, 1) if orientation > 4 else stored
    shown = shown[::-1] if orientation in (3, 4, 7, 8) else shown
    shown = shown[:, ::-1] if orientation in (2, 3, 6, 7) else shown
    assert np.array_equal(decode(data, upright=True), shown)
    assert np.array_equal(decode(data), np.asarray(made.decoded(data)))
    upright, view = encode(shown, "PNG"), CropSpec(8, upright=True)
    assert np.array_equal(eval_view(view, data), eval_view(view, upright))
    one, other = (train_view(view, x, np.random.default_rng(0)) for x in (data, upright))
    assert np.array_equal(one, other)


def test_damaged_metadata_turn_nothing():
    for exif in (b"Exif\0\0MM\0*\0\0\0\x08\0\x09", b"Exif\0\0nonsense", b"Exif\0\0"):
        for kind in ("JPEG", "WEBP"):
            turned = decode(encoded(kind, exif=exif), upright=True)
            assert np.array_equal(turned, decode(encoded(kind)))


@pytest.mark.parametrize("kind", FILES)
def test_colors_that_become_rgb_have_names(kind):
    expected = "CMYK" if "CMYK" in kind else "gray" if re.search("gray|black", kind) else ""
    assert color(FILES[kind]) == expected
    assert color(FILES[kind][:3]) == ""


def test_sixteen_bit_gray_is_scaled():
    levels = np.array([[0, 255, 256], [32768, 65279, 65535]], np.uint16)
    data = made.encode(levels, "PNG")
    assert decode(data)[:, :, 1].tolist() == [[0, 0, 1], [128, 254, 255]]
    assert decode(data).shape == (2, 3, 3)


@pytest.mark.parametrize("most", [300, 1023, 4095, 65535])
@pytest.mark.parametrize("form", ["P2", "P5"])
def test_a_pgm_of_more_than_8_bits_is_scaled(form, most):
    levels = np.linspace(0, most, 600).round().astype(">u2").reshape(20, 30)
    numbers = levels.tobytes() if form == "P5" else " ".join(map(str, levels.flat)).encode()
    pixels = decode(f"{form}\n30 20\n{most}\n".encode() + numbers)
    assert (pixels == pixels[:, :, :1]).all()
    assert np.abs(pixels[:, :, 0] - levels * (255 / most)).max() < 1


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_32_bit_gray_is_refused(dtype):
    data = made.encode(np.ones((4, 5), dtype), "TIFF")
    words = "a.tif can't be decoded (32-bit gray has no known range"
    refused(lambda: decode(data, "a.tif"), words)


@pytest.mark.parametrize("reduction", [2, 4])
@pytest.mark.parametrize("kind", ["JPEG", "gray JPEG"])
def test_a_reduced_jpeg_is_the_average_of_the_whole(kind, reduction):
    """Within the few levels by which the DCT's low-pass filter differs from a box."""
    whole = decode(FILES[kind])
    pixels = decode(FILES[kind], reduction=reduction)
    height, width = (length // reduction for length in whole.shape[:2])
    assert pixels.shape == (*(-(-length // reduction) for length in whole.shape[:2]), 3)
    cut = whole[: height * reduction, : width * reduction].astype(float)
    means = cut.reshape(height, reduction, width, reduction, 3).mean((1, 3))
    assert np.abs(pixels[:height, :width] - means).mean() < 3


@pytest.mark.parametrize("kind", ["JPEG", "gray JPEG", "CMYK JPEG", "PNG"])
@pytest.mark.parametrize("kept", [0.0, 0.02, 0.3, 0.6])
def test_a_truncated_file_is_named(kind, kept):
    data = FILES[kind][: int(kept * len(FILES[kind]))]
    for read in (decode, check_image):
        refused(functools.partial(read, data, "cat.JPEG"), "cat.JPEG can't be decoded")


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(%pipe%id)\n"
"""For which Pillow calls Ghostscript."""


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8\xff", b"<html>404</html>", b"\xff\xd8\xff\xe0" + bytes(50), POSTSCRIPT]
)
def test_other_bytes_are_refused(data):
    assert jpeg_shape(data) is None
    refused(lambda: decode(data), f"no known image format in its {len(data)} bytes")


def test_an_image_beyond_pillows_limit_is_named(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", PHOTO.shape[0] * PHOTO.shape[1] // 3)
    refused(lambda: decode(FILES["PNG"], "a.png"), "a.png can't be decoded (", "exceeds limit")


def test_opencv_starts_no_threads():
    decode(FILES["JPEG"])
    assert sys.modules["cv2"].getNumThreads() == 1
