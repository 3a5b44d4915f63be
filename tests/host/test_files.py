"""Files are opened only where they are regular files, and written only where they aren't links."""

import os
import pathlib

import pytest

from mimetic_jax.host.files import open_to_read, open_to_write, read_bytes


def pipe(path: pathlib.Path) -> None:
    os.mkfifo(path)


def folder(path: pathlib.Path) -> None:
    path.mkdir()


def device(path: pathlib.Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, folder, device])
def test_only_regular_files_are_read(tmp_path, make):
    make(tmp_path / "x")
    with pytest.raises(OSError, match=r"regular file|directory"):
        open_to_read(tmp_path / "x")


def test_a_link_to_a_file_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link", most=4) == b"text"
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_bytes(tmp_path / "link", most=3)


@pytest.mark.parametrize("mode", ["wb", "ab", "r+b"])
@pytest.mark.parametrize("make", [pipe, folder, device])
def test_only_regular_files_are_written(tmp_path, make, mode):
    make(tmp_path / "x")
    with pytest.raises(OSError):  # noqa: PT011  # the kernel's words differ
        open_to_write(tmp_path / "x", mode)


@pytest.mark.parametrize("target", ["file", "missing"])
def test_nothing_is_written_through_a_link(tmp_path, target):
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OSError, match="a symbolic link"):
        open_to_write(tmp_path / "link")
    assert (tmp_path / "file").read_bytes() == b"text"
    assert not (tmp_path / "missing").exists()
