"""Places: files below a workdir are regular, reached through no link, and written whole."""

import os

import pytest

from mimetic_jax import InputError
from mimetic_jax.train.store.places import Place

CALLS = {
    "read": lambda place: place.read(),
    "write": lambda place: place.write("new"),
    "append": lambda place: place.append("new"),
    "exists": lambda place: place.exists(),
    "make": lambda place: place.parent.make(),
    "names": lambda place: place.parent.names(),
    "path": lambda place: place.path,
}


@pytest.mark.parametrize("call", CALLS)
def test_no_link_below_the_root_is_followed(tmp_path, call):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("precious")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    with pytest.raises(InputError, match=f"{root}/link is a symbolic link, which isn't followed"):
        CALLS[call](Place(root) / "link" / "file")
    assert (outside / "file").read_text() == "precious"


@pytest.mark.parametrize("call", ["read", "write", "append"])
def test_a_file_that_is_a_link_is_left_as_it_is(tmp_path, call):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "x").symlink_to("precious")
    with pytest.raises(InputError, match="is a symbolic link"):
        CALLS[call](Place(tmp_path) / "x")
    assert (tmp_path / "precious").read_text() == "kept"


def test_the_root_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    place = Place.of(str(tmp_path / "runs")) / "x"
    place.write("one")
    assert (tmp_path / "disk" / "x").read_text() == "one"
    assert place.read() == b"one"


@pytest.mark.parametrize("call", ["read", "write", "append"])
def test_a_pipe_keeps_nobody_waiting(tmp_path, call):
    os.mkfifo(tmp_path / "x")
    with pytest.raises((InputError, OSError), match=r"not a regular file|No such device"):
        CALLS[call](Place(tmp_path) / "x")


def test_a_write_leaves_no_draft(tmp_path):
    for text in ("one", "two"):
        (Place(tmp_path) / "x.json").write(text)
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert (tmp_path / "x.json").read_text() == "two"


def test_a_full_disk_keeps_the_old_text(tmp_path, full_disk):
    place = Place(tmp_path) / "x.json"
    place.write("one")
    with full_disk(100), pytest.raises(OSError, match="File too large"):
        place.write(200 * "2")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert place.read() == b"one"


def test_removing_a_folder_leaves_what_its_links_name(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("precious")
    (tmp_path / "root" / "folder").mkdir(parents=True)
    (tmp_path / "root" / "folder" / "link").symlink_to(tmp_path / "outside")
    (Place(tmp_path / "root") / "folder").remove()
    assert (tmp_path / "outside" / "file").read_text() == "precious"
    assert Place(tmp_path / "root").names() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s3://bucket/folder", "is neither a local folder nor gs://"),
        ("gs://", "is neither a local folder nor gs://"),
        ("", "workdir is empty: give a path"),
        ("a\0b", "has a NUL character"),
    ],
)
def test_other_paths_are_refused(text, words):
    with pytest.raises(InputError, match=words):
        Place.of(text)
