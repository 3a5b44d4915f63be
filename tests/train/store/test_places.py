"""Places: files below a workdir are written whole or not at all."""

import pytest

from mimetic_jax import InputError
from mimetic_jax.train.store.places import Place


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
