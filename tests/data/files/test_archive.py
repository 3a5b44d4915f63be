"""Archives read in place, by threads and copies, and plain errors for damaged ones."""

import os
import pickle
import shutil
import struct
import subprocess
import tarfile
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mimetic_jax.data.files.archive import Archive
from mimetic_jax.data.files.decode import DecodeError
from mimetic_jax.errors import InputError
from tests.data.made import member, tar_of, zip_of

LONG = "/".join(["folder" * 5] * 8)
SIZES = {
    "a.JPEG": 70_000,
    "b/empty": 0,
    "b/ü.JPEG": 511,
    f"b/{'n' * 90}/d.JPEG": 512,
    f"{LONG}/e.JPEG": 513,
    "b/last.JPEG": 2_000,
}
NAMES = list(SIZES)


def content(name: str) -> bytes:
    return np.random.default_rng(NAMES.index(name)).bytes(SIZES[name])


FILES = [(name, content(name)) for name in NAMES]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def write_tar(path: Path, form: int = tarfile.GNU_FORMAT) -> Path:
    return write(path, tar_of([member("b", tarfile.DIRTYPE), *FILES], form))


def write_zip(path: Path, method: int) -> Path:
    return write(path, zip_of([("b/", b""), *FILES], method))


@pytest.fixture(params=["gnu", "posix", "stored", "deflated"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    if request.param in ("gnu", "posix"):
        form = tarfile.GNU_FORMAT if request.param == "gnu" else tarfile.PAX_FORMAT
        return Archive(write_tar(tmp_path / "images.tar", form))
    method = zipfile.ZIP_STORED if request.param == "stored" else zipfile.ZIP_DEFLATED
    return Archive(write_zip(tmp_path / "images.zip", method))


def test_every_file_is_read(archive: Archive) -> None:
    assert archive.files == NAMES
    assert archive.folders == ["b"]
    for index in np.random.default_rng(0).permutation(len(NAMES)):
        assert archive.read(int(index)) == content(NAMES[index])


def test_old_tars_split_long_names(tmp_path: Path) -> None:
    name = f"{'x' * 80}/{'y' * 80}.JPEG"
    data = tar_of({name: b"abc"}, tarfile.USTAR_FORMAT)
    archive = Archive(write(tmp_path / "old.tar", data))
    assert archive.files == [name]
    assert archive.read(0) == b"abc"


def test_threads_and_copies_read_the_same(archive: Archive) -> None:
    copy = pickle.loads(pickle.dumps(archive))
    with ThreadPoolExecutor(8) as pool:
        for opened in (archive, copy):
            read = list(pool.map(opened.read, [index % len(NAMES) for index in range(200)]))
            assert read == [content(NAMES[index % len(NAMES)]) for index in range(200)]


def test_the_file_is_closed(archive: Archive) -> None:
    archive.read(0)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 1
    del archive
    after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    assert after <= before


def test_a_tar_of_tars_is_one_list(tmp_path: Path) -> None:
    """The form of ImageNet's training images."""
    inner = {
        f"{synset}.tar": tar_of(
            {f"{synset}_{number}.JPEG": f"{synset} {number}".encode() for number in range(3)}
        )
        for synset in ("n02", "n01")
    }
    archive = Archive(write(tmp_path / "train.tar", tar_of(inner)))
    expected = [(synset, number) for synset in ("n02", "n01") for number in range(3)]
    assert archive.files == [f"{synset}/{synset}_{number}.JPEG" for synset, number in expected]
    assert archive.folders == ["n02", "n01"]
    for index, (synset, number) in enumerate(expected):
        assert archive.read(index) == f"{synset} {number}".encode()


LINKS = [
    ("early.JPEG", tarfile.SYMTYPE, "b/ü.JPEG"),
    ("b/up.JPEG", tarfile.SYMTYPE, "../a.JPEG"),
    ("b/again.JPEG", tarfile.SYMTYPE, "./up.JPEG"),
    ("./hard.JPEG", tarfile.LNKTYPE, "b/last.JPEG"),
    ("b/hard.JPEG", tarfile.LNKTYPE, "./hard.JPEG"),
    ("b/soft.JPEG", tarfile.SYMTYPE, "hard.JPEG"),
    ("long.JPEG", tarfile.LNKTYPE, f"{LONG}/e.JPEG"),
    ("b/last.JPEG", tarfile.LNKTYPE, "b/last.JPEG"),
]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_link_is_the_file_that_it_leads_to(tmp_path: Path, form: int) -> None:
    links = [member(*link) for link in LINKS]
    path = write(tmp_path / "images.tar", tar_of([links[0], *FILES, *links[1:]], form))
    archive = Archive(path)
    names = [name.removeprefix("./") for name, *_ in LINKS]
    assert archive.files == [names[0], *NAMES, *names[1:-1]]  # the last is a link to itself
    targets = [
        "b/ü.JPEG",
        "a.JPEG",
        "a.JPEG",
        *3 * ["b/last.JPEG"],
        f"{LONG}/e.JPEG",
        "b/last.JPEG",
    ]
    for name, target in zip(names, targets, strict=True):
        assert archive.read(archive.files.index(name)) == content(target)
    with tarfile.open(path) as tar:
        for name, _, _ in LINKS[:-1]:
            assert tar.extractfile(name).read() == archive.read(
                archive.files.index(name.removeprefix("./"))
            )


def test_links_within_inner_tars(tmp_path: Path) -> None:
    inner = [
        ("x/a.JPEG", content("a.JPEG")),
        member("x/hard.JPEG", tarfile.LNKTYPE, "x/a.JPEG"),
        member("soft.JPEG", tarfile.SYMTYPE, "x/a.JPEG"),
    ]
    archive = Archive(write(tmp_path / "outer.tar", tar_of({"n01.tar": tar_of(inner)})))
    assert archive.files == ["n01/x/a.JPEG", "n01/x/hard.JPEG", "n01/soft.JPEG"]
    assert {archive.read(index) for index in range(3)} == {content("a.JPEG")}


@pytest.mark.parametrize("target", ["no.JPEG", "/etc/passwd", "../a.JPEG", "b", "x.JPEG", ""])
def test_a_link_to_no_file_counts_as_a_damaged_image(tmp_path: Path, target: str) -> None:
    """As in a folder: to nothing, to somewhere else, to a folder or to itself."""
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        link = member("x.JPEG", kind, target)
        data = tar_of([member("b", tarfile.DIRTYPE), FILES[0], link])
        archive = Archive(write(tmp_path / "images.tar", data))
        assert archive.files == ["a.JPEG", "x.JPEG"]
        with pytest.raises(
            DecodeError, match=r"images\.tar:x\.JPEG can't be decoded \(it is a link"
        ):
            archive.read(1)


SAME = ["cat/1.png", "./cat/1.png", "cat//1.png", "cat/../cat/1.png", "/cat/1.png"]


@pytest.mark.parametrize("form", ["tar", "zip"])
@pytest.mark.parametrize("again", SAME)
def test_the_last_of_several_members_with_one_path_counts(
    tmp_path: Path, form: str, again: str
) -> None:
    """As `tar rf` and `tar uf` append them; the others would be images twice, or old ones."""
    members = [("cat/1.png", b"old"), ("dog/1.png", b"dog"), (again, b"newer")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the duplicate
        data = tar_of(members) if form == "tar" else zip_of(members)
    archive = Archive(write(tmp_path / f"images.{form}", data))
    content = {name: archive.read(index) for index, name in enumerate(archive.files)}
    assert len(archive.files) == 2
    assert content == {"cat/1.png": b"newer", "dog/1.png": b"dog"}


def test_the_last_of_several_inner_tars_counts(tmp_path: Path) -> None:
    inner = [{"old.png": b"x", "both.png": b"x"}, {"both.png": b"x", "new.png": b"x"}]
    data = tar_of([("cat.tar", tar_of(files)) for files in inner])
    assert Archive(write(tmp_path / "train.tar", data)).files == ["cat/both.png", "cat/new.png"]


@pytest.mark.skipif(not shutil.which("tar"), reason="needs GNU tar")
@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_a_file_stored_without_its_holes_is_refused(tmp_path: Path, form: str) -> None:
    (tmp_path / "cat").mkdir()
    with (tmp_path / "cat/1.png").open("wb") as file:
        file.truncate(2**20)
        file.write(b"x")
    command = ["tar", "--sparse", f"--format={form}", "-cf", "images.tar", "cat"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with pytest.raises(InputError, match=r"images\.tar:cat/1\.png is stored without its holes"):
        Archive(tmp_path / "images.tar")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_is_checked_against_its_checksums(tmp_path: Path, method: int) -> None:
    path = write_zip(tmp_path / "images.zip", method)
    with zipfile.ZipFile(path) as file:
        checksum = struct.pack("<I", file.getinfo("a.JPEG").CRC)
    data = path.read_bytes()
    at = data.rindex(checksum)
    path.write_bytes(data[:at] + bytes(4) + data[at + 4 :])
    with pytest.raises(DecodeError, match=r"a\.JPEG is damaged: its CRC-32 isn't the 00000000"):
        Archive(path).read(0)


def offsets(path: Path) -> dict[str, int]:
    """The byte of each member's header, from tarfile."""
    with tarfile.open(path) as tar:
        return {member.name: member.offset_data - 512 for member in tar.getmembers()}


def test_a_tar_truncated_anywhere_is_reported(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "whole.tar").read_bytes()
    end = offsets(tmp_path / "whole.tar")["b/last.JPEG"] + 512 + 4 * 512
    path = tmp_path / "cut.tar"
    for kept in [0, 1, 511, 512, 700, 1024, 3000, end // 2, end - 512, end - 1, end, end + 511]:
        path.write_bytes(whole[:kept])
        with pytest.raises(InputError, match=rf"cut\.tar is truncated at byte {kept}: "):
            Archive(path)
    path.write_bytes(whole[: end + 512])
    assert Archive(path).files == NAMES


def test_a_tar_truncated_after_opening_is_reported(tmp_path: Path) -> None:
    archive = Archive(write_tar(tmp_path / "images.tar"))
    os.truncate(tmp_path / "images.tar", 60_000)
    with pytest.raises(
        InputError, match=r"truncated at byte 60000: b/last.JPEG should end at byte"
    ):
        archive.read(NAMES.index("b/last.JPEG"))


def test_damage_within_a_tar_is_reported_with_its_byte(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "images.tar")
    offset = offsets(path)["b/empty"]
    data = bytearray(path.read_bytes())
    data[offset + 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=f"no file header at byte {offset}"):
        Archive(path)


@pytest.mark.parametrize("data", [b"\x1f\x8b" + b"z" * 600, b"no tar" * 200])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "images.tar").write_bytes(data)
    with pytest.raises(InputError, match="isn't an uncompressed tar"):
        Archive(tmp_path / "images.tar")


def test_a_damaged_zip_is_reported(tmp_path: Path) -> None:
    whole = write_zip(tmp_path / "whole.zip", zipfile.ZIP_DEFLATED).read_bytes()
    path = tmp_path / "images.zip"
    path.write_bytes(whole[:-500])
    with pytest.raises(InputError, match="truncated or damaged"):
        Archive(path)
    path.write_bytes(bytes(1000) + whole[1000:])
    with pytest.raises(InputError, match="no file header at byte"):
        Archive(path).read(0)
    with zipfile.ZipFile(tmp_path / "whole.zip") as file:
        start = file.getinfo("b/last.JPEG").header_offset + 30 + len("b/last.JPEG")
    path.write_bytes(whole[:start] + b"\xff" * 200 + whole[start + 200 :])
    with pytest.raises(DecodeError, match=r"b/last\.JPEG is damaged"):
        Archive(path).read(NAMES.index("b/last.JPEG"))


def test_an_unknown_compression_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "images.zip", zipfile.ZIP_LZMA)
    with pytest.raises(InputError, match="neither stored nor deflated: unpack it"):
        Archive(path)


@pytest.mark.parametrize("name", ["none.tar", "none.zip"])
def test_a_missing_archive_is_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"can't read .*{name}"):
        Archive(tmp_path / name)
