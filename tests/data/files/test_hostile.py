"""Images and archives made to harm: refused or skipped in little time and memory."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import tarfile
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from PIL import Image

from mimetic_jax.data import eval_batches
from mimetic_jax.data.files.archive import Archive
from mimetic_jax.data.files.decode import DecodeError, Limits, decode
from mimetic_jax.data.files.folder import Folder
from mimetic_jax.data.files.sources import file_source
from mimetic_jax.data.files.views import eval_view, train_view
from mimetic_jax.data.sets.dataset import StreamedDataset
from mimetic_jax.errors import InputError
from tests.data.made import encode, tar_of
from tests.fuzz import Change, changes, damaged, peak_bytes


def encoded(form: str, height: int = 8, width: int = 8) -> bytes:
    return encode(np.zeros((height, width, 3), np.uint8), form)


def header(name: bytes, size: bytes, kind: bytes = b"0", magic: bytes = b"ustar\x0000") -> bytes:
    """A block of a tar with a right checksum, whatever its fields say."""
    block = bytearray(512)
    block[: len(name)], block[124 : 124 + len(size)] = name, size
    block[156:157], block[257 : 257 + len(magic)] = kind, magic
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax(content: bytes) -> bytes:
    """An extended header, and a file that it is about."""
    padded = content + bytes(-len(content) % 512)
    return header(b"x", b"%011o\0" % len(content), b"x") + padded + FILE


FILE = header(b"a.png", b"00000000003\0") + b"abc" + bytes(509)
END = bytes(1024)
NESTED = FILE + END
for _ in range(1500):
    NESTED = header(b"n.tar", b"\x80" + len(NESTED).to_bytes(11, "big")) + NESTED + END

TARS = {
    "negative octal": header(b"a.png", b"-0000001000\0") + END,
    "negative base 256": header(b"a.png", b"\xff" * 12) + END,
    "back to itself": header(b"a.png", b"\xff" * 10 + b"\xfc\x00") + END,
    "not a number": header(b"a.png", b"zzzzzzzzzzz\0") + END,
    "not octal": header(b"a.png", b"00000000009\0") + END,
    "record of length 0": pax(b"0 path=x\n"),
    "record without length": pax(b"path=x\n"),
    "record of negative length": pax(b"-9 path=x\n"),
    "record past the end": pax(b"99 path=x\n"),
    "record of a huge length": pax(b"9" * 5_000 + b" path=x\n"),
    "record without a key": pax(b"6 abcd\n"),
    "zeros": pax(bytes(512)),
    "size that is text": pax(b"12 size=abc\n"),
    "size below zero": pax(b"11 size=-5\n"),
    "size of 5,000 digits": pax(b"5011 size=" + b"9" * 5_000 + b"\n"),
    "name of a terabyte": header(b"x", b"\x80" + (2**40).to_bytes(11, "big"), b"L") + END,
    "name of 2 MiB": header(b"x", b"%011o\0" % 2**21, b"L") + bytes(2**21) + FILE + END,
    "1,500 nested": NESTED + END,
    "gzip": b"\x1f\x8b\x08" + bytes(600),
    "nothing": b"",
}


@pytest.mark.parametrize("case", TARS)
def test_a_bad_tar_is_one_line(tmp_path: Path, case: str) -> None:
    (tmp_path / "images.tar").write_bytes(TARS[case])
    with peak_bytes(10_000_000), pytest.raises(InputError) as caught:
        Archive(tmp_path / "images.tar")
    assert "\n" not in str(caught.value)
    assert "images.tar" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_names_that_are_no_utf8_are_read(tmp_path: Path, form: int) -> None:
    path = tmp_path / "images.tar"
    name = b"train/\xe9t\xe9/\xff.png" + b"x" * (0 if form == tarfile.USTAR_FORMAT else 120)
    with tarfile.open(path, "w", format=form, encoding="latin1") as tar:
        info = tarfile.TarInfo(os.fsdecode(name))
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
    (found,) = Archive(path).files
    assert found.encode("utf-8", "surrogateescape").startswith(b"train/")
    assert Archive(path).read(0) == b"abc"


def write_zip(path: Path, content: bytes, claimed: int | None = None) -> Path:
    """A zip of one deflated image, whose directory may claim another size."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("train/a/x.png", content)
    if claimed is not None:
        data = bytearray(path.read_bytes())
        at = data.rindex(b"PK\x01\x02") + 24
        data[at : at + 4] = struct.pack("<I", claimed)
        path.write_bytes(data)
    return path


@pytest.mark.parametrize("claimed", [None, 100, 2**31])
def test_a_zip_that_inflates_is_not_inflated(tmp_path: Path, claimed: int | None) -> None:
    """Whether it claims what it inflates to, less, or 2 GiB."""
    path = write_zip(tmp_path / "a.zip", bytes(2**23), claimed)
    archive = Archive(path, Limits(bytes=2**20))
    with peak_bytes(2_000_000), pytest.raises(DecodeError, match=r"a\.zip:train/a/x\.png"):
        archive.read(0)


def test_large_files_are_not_read(tmp_path: Path) -> None:
    """They have no blocks on the disk."""
    for name, form in (("a.png", Folder), ("a.tar", Archive)):
        path = tmp_path / name
        with path.open("wb") as file:
            if name == "a.tar":
                file.write(header(b"a.png", b"\x80" + (2**32).to_bytes(11, "big")))
            file.truncate(512 + 2**32 + 1024)
        container = form(path if name == "a.tar" else tmp_path)
        with (
            peak_bytes(2_000_000),
            pytest.raises(DecodeError, match=r"4,294,96.* bytes, more"),
        ):
            container.read(0)


def claiming(data: bytes, height: int, width: int) -> bytes:
    """A JPEG whose frame says that it has this shape."""
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def png_of(height: int, width: int) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        sums = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + sums

    shape = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(100_000))
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", shape) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


JPEG = encoded("JPEG")
IMAGES = {
    "JPEG": claiming(JPEG, 30_000, 30_000),
    "JPEG of a row": claiming(JPEG, 3_000, 65_000),
    # Decoders that skip the markers without a length see another frame than those that don't.
    "JPEG of two frames": JPEG[:2]
    + b"\xff\xd0\x00\x11\xff\xc0\x00\x0b\x08\x00\x08\x00\x08\x01\x01\x11\x00\xff\xd9"
    + claiming(JPEG, 30_000, 30_000)[2:],
    "PNG": png_of(30_000, 30_000),
    "GIF": b"GIF89a" + struct.pack("<HH", 60_000, 60_000) + encoded("GIF")[10:],
    "PPM": b"P6 60000 60000 255\n" + bytes(100),
    "BMP": encoded("BMP")[:18] + struct.pack("<ii", 40_000, 40_000) + encoded("BMP")[26:],
}


@pytest.mark.parametrize("form", IMAGES)
def test_an_image_of_a_gigapixel_is_not_decoded(form: str) -> None:
    rng = np.random.default_rng(0)
    views = (
        lambda data: decode(data, "a.jpg"),
        lambda data: train_view(data, 64, rng, name="a.jpg"),
        lambda data: eval_view(data, 64, 0.875, name="a.jpg"),
    )
    for view in views:
        with peak_bytes(10_000_000), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's own, of a decompression bomb
            with pytest.raises(DecodeError, match=r"a\.jpg"):
                view(IMAGES[form])


def test_limits_are_the_users(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Honest data may hold images larger than the default, and than Pillow's own limit."""
    data, few = encoded("PNG"), Limits(pixels=63, bytes=10)
    for view in (decode, lambda data, limits: eval_view(data, 8, 1.0, limits=limits)):
        with pytest.raises(DecodeError, match=r"pixels, more than 63: data\.max_pixels allows"):
            view(data, limits=few)
    source = file_source(Folder(mixed, few), "train", 1)
    with pytest.raises(DecodeError, match=r"bytes, more than 10: data\.max_bytes allows"):
        source.read(0)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    assert decode(data, limits=Limits(pixels=64)).shape == (8, 8, 3)


def test_a_narrow_image_is_not_enlarged_beyond_the_limit() -> None:
    """Resized to a shorter side of 256, a strip of 24,000 pixels would have a hundred million."""
    strip = encoded("PNG", 4, 6_000)
    words = r"a\.png, resized, has 256x384000 pixels, more than 1,000,000"
    with peak_bytes(1_000_000), pytest.raises(DecodeError, match=words):
        eval_view(strip, 224, 0.875, name="a.png", limits=Limits(pixels=10**6))


def test_no_program_is_run_for_an_image() -> None:
    """Pillow calls Ghostscript for PostScript."""
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(%pipe%id)\n"
    with pytest.raises(DecodeError, match="no known image format"):
        decode(postscript, "a.jpg")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder of good images and of one of each bad kind."""
    folder = tmp_path / "images" / "train" / "a"
    folder.mkdir(parents=True)
    for number in range(6):
        (folder / f"good{number}.png").write_bytes(encoded("PNG"))
    (folder / "bomb.jpg").write_bytes(IMAGES["JPEG"])
    (folder / "dead.png").symlink_to("nowhere")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "empty.png").write_bytes(b"")
    os.mkfifo(folder / "pipe.png")
    with (folder / "sparse.png").open("wb") as file:
        file.truncate(Limits().bytes + 1)
    return tmp_path / "images"


def test_bad_images_of_a_folder_are_skipped_and_counted(mixed: Path) -> None:
    source = file_source(Folder(mixed), "train", 1)
    with eval_batches(source, 4, 8, 1.0, threads=1) as batches:
        counted = np.concatenate([weights for _, _, weights in batches])
        skipped = {name.rpartition("/")[2] for name in batches.skipped}
    assert skipped == {f"{name}.png" for name in ("dead", "loop", "empty", "pipe", "sparse")} | {
        "bomb.jpg"
    }
    assert counted.sum() == 6


def test_a_fingerprint_passes_over_bad_images(mixed: Path) -> None:
    source = file_source(Folder(mixed), "train", 1)
    before = StreamedDataset(source, source).fingerprint()
    (mixed / "train/a/good0.png").write_bytes(encoded("PNG", 9, 9))
    assert StreamedDataset(source, source).fingerprint() != before


def archive_bytes(form: str, tmp_path: Path) -> bytes:
    if form == "zip":
        data = write_zip(tmp_path / "whole.zip", encoded("PNG")).read_bytes()
    else:
        names = ("train/a/x.png", "train/ü/y.png", "train/" + "n" * 120 + "/z.png")
        data = tar_of(dict.fromkeys(names, b"abc"), tarfile.PAX_FORMAT)
    return data.rstrip(b"\0") + bytes(1536)


@pytest.mark.parametrize("form", ["tar", "zip"])
@pytest.mark.parametrize("sealed", [False, True])
def test_random_edits_are_read_or_refused(tmp_path: Path, form: str, sealed: bool) -> None:
    """Of a tar's headers also such edits whose checksums fit."""
    whole = archive_bytes(form, tmp_path)
    path = tmp_path / f"images.{form}"

    @settings(deadline=None, max_examples=100, derandomize=True, database=None)
    @given(changes)
    def check(edits: list[Change]) -> None:
        content = damaged(whole, edits)
        path.write_bytes(summed(content) if sealed else content)
        with peak_bytes(10_000_000), contextlib.suppress(InputError):
            archive = Archive(path)
            for index in range(len(archive.files)):
                with contextlib.suppress(DecodeError):
                    archive.read(index)

    check()


def summed(content: bytes) -> bytes:
    """The content with the right checksum in every block that looks like a header."""
    found = bytearray(content)
    for at in range(0, len(found) - 511, 512):
        if found[at + 257 : at + 262] == b"ustar":
            found[at + 148 : at + 156] = b" " * 8
            found[at + 148 : at + 156] = b"%06o\0 " % sum(found[at : at + 512])
    return bytes(found)


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(changes)
def test_random_edits_of_images_are_decoded_or_refused(edits: list[Change]) -> None:
    for data in (JPEG, encoded("PNG"), encoded("GIF")):
        with warnings.catch_warnings(), contextlib.suppress(DecodeError):
            warnings.simplefilter("ignore")
            pixels = decode(damaged(data, edits))
            assert pixels.dtype == np.uint8
            assert pixels.shape[0] * pixels.shape[1] <= Limits().pixels
