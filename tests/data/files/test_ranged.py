"""Files by ranges of bytes: on a disk, and as in a bucket, by TensorStore on files here."""

import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from mimetic_jax.data import home
from mimetic_jax.data.files import archive, index
from mimetic_jax.data.files.archive import Archive
from mimetic_jax.data.files.decode import DecodeError
from mimetic_jax.data.files.ranged import BucketFile, DiskFile
from mimetic_jax.errors import InputError
from mimetic_jax.extras import EXTRAS

CONTENT = np.random.default_rng(0).bytes(100_000)


def in_bucket(path: Path) -> BucketFile:
    return BucketFile(path.as_uri(), path.stat().st_size)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


def write_tars(path: Path) -> Path:
    """A tar of tars, with a folder, a link, and a link to nothing."""
    with tarfile.open(path, "w") as outer:
        for name in ("n01", "n02"):
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as inner:
                for number in range(3):
                    info = tarfile.TarInfo(f"{name}_{number}.JPEG")
                    info.size = 700 + number
                    inner.addfile(info, io.BytesIO(CONTENT[number : info.size + number]))
            info = tarfile.TarInfo(f"{name}.tar")
            info.size = len(packed.getvalue())
            outer.addfile(info, io.BytesIO(packed.getvalue()))
        for name, target in (("link.JPEG", "n01/n01_2.JPEG"), ("dead.JPEG", "nowhere")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            outer.addfile(info)
    return path


def contents(opened: Archive) -> dict[str, bytes | str]:
    found: dict[str, bytes | str] = {}
    for number, name in enumerate(opened.files):
        try:
            found[name] = opened.read(number)
        except DecodeError as error:
            found[name] = str(error)
    return found


@pytest.mark.parametrize("opened", [DiskFile, in_bucket])
def test_ranges_and_positions(file: Path, opened: type) -> None:
    ranged = pickle.loads(pickle.dumps(opened(file)))
    assert ranged.size == len(CONTENT)
    for start, count in ((0, 10), (99_990, 100), (100_000, 1), (5, 0), (77, 30_000)):
        assert ranged.read(start, count) == CONTENT[start : start + count]
    with ranged.open() as stream:
        assert stream.read(3) == CONTENT[:3]
        stream.seek(-7, io.SEEK_END)
        assert stream.read() == CONTENT[-7:]
        stream.seek(50_000)
        stream.seek(5, io.SEEK_CUR)
        assert (stream.tell(), stream.read(2)) == (50_005, CONTENT[50_005:50_007])


def test_a_short_read_names_the_bytes(file: Path) -> None:
    with pytest.raises(InputError, match=r"file can't be read from byte 99999 to 100002"):
        BucketFile(file.as_uri(), len(CONTENT) + 2).read(99_999, 5)


def test_a_file_that_is_replaced_or_removed_ends_reading(file: Path) -> None:
    bucket = in_bucket(file)
    bucket.read(0, 5)
    file.write_bytes(b"x" * len(CONTENT))
    with pytest.raises(InputError, match="replaced or removed after it was opened"):
        bucket.read(0, 5)
    file.unlink()
    with pytest.raises(InputError, match="replaced or removed after it was opened"):
        bucket.read(0, 5)
    with pytest.raises(InputError, match="0 bytes came"):
        BucketFile(file.as_uri(), 5).read(0, 5)


def test_a_tar_of_tars_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tars(tmp_path / "a.tar")
    here = Archive(path)
    monkeypatch.setattr(archive, "ranged", in_bucket)
    there = Archive(path)
    assert (there.files, there.folders) == (here.files, here.folders)
    assert contents(there) == contents(here)
    assert len(there.files) == 8
    assert there.in_flight > here.in_flight == 1


def test_the_index_of_a_tar_replaces_its_headers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_tars(tmp_path / "a.tar")
    before = Archive(path)
    expected = contents(before)
    index.main([str(path)])
    assert capsys.readouterr().out == f"{path}.index: 10 files and folders\n"
    with path.open("r+b") as stream:
        stream.write(b"\xff" * 512)  # the first header
    after = Archive(path)
    assert (after.files, after.folders) == (before.files, before.folders)
    assert contents(after) == expected
    with path.open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(InputError, match=r"a.tar.index is the index of a tar of [\d,]+ bytes, not"):
        Archive(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 10**5,
        b'{"bytes": 10240, "folders": []}',
        b'{"bytes": 10240, "folders": [], "files": [["a", 0]]}',
        b'{"bytes": 10240, "folders": [], "files": [["a", 0, "x", -1]]}',
        b'{"bytes": 10240, "folders": [], "files": [["a", 0, 10241, -1]]}',
        b'{"bytes": 10240, "folders": [], "files": [["a", -1, 0, -1]]}',
    ],
)
def test_a_damaged_index_is_one_line(tmp_path: Path, content: bytes) -> None:
    tarfile.open(tmp_path / "a.tar", "w").close()
    (tmp_path / "a.tar.index").write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        Archive(tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("gs:/bucket/a", "gs:/bucket/a has one slash where a bucket has two: gs://bucket/a"),
        ("s3:///bucket", "not on a local disk"),
        ("http://host/a", "http://host/a is not on a local disk"),
        ("gs://", "not on a local disk"),
    ],
)
def test_addresses_that_are_no_buckets(path: str, words: str) -> None:
    for read in (home.located, home.expanded):
        with pytest.raises(InputError, match=words):
            read(path)


def test_what_is_no_archive_in_a_bucket_is_to_be_copied() -> None:
    with pytest.raises(InputError, match="gcloud storage cp --recursive gs://a/b DIR"):
        home.expanded("gs://a/b")


def test_a_bucket_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(home._BUCKETS, "s3", ("no_such_module", "s3"))
    monkeypatch.setitem(EXTRAS, "s3", ("no_such_module",))
    with pytest.raises(InputError, match=r"data in s3://b/a needs no_such_module: .*\[s3\]"):
        home.located("s3://b/a")
