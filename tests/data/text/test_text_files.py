"""A text of one's own: as it is split, or split at line ends, with nothing lost between."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mimetic_jax.data.text.corpus import describe
from mimetic_jax.data.text.text_files import _divided, load_own
from mimetic_jax.errors import InputError

LINES = [f"line {n} of a text, äöü\n" for n in range(100)]
SPLITS = ("train", "valid", "test")


def written(corpus, split: str, between: str = "") -> str:
    return between.join(corpus.vocabulary[token] for token in getattr(corpus, split))


@pytest.mark.parametrize("form", ["file", "folder"])
def test_a_text_is_split_at_line_ends_and_joins_again(tmp_path: Path, form: str) -> None:
    if form == "file":
        path = tmp_path / "notes.md"
        path.write_text("".join(LINES))
    else:
        path = tmp_path / "notes"
        path.mkdir()
        (path / "b.txt").write_text("".join(LINES[60:]))
        (path / "a.txt").write_text("".join(LINES[:60]))
        (path / "c.md").write_text("no text file")
    corpus = load_own("text_char", str(path))
    assert corpus.name == "notes"
    parts = [written(corpus, split) for split in SPLITS]
    assert "".join(parts) == "".join(LINES)
    assert all(part.endswith("\n") for part in parts)
    assert [part.count("\n") for part in parts] == pytest.approx([90, 5, 5], abs=1)


def test_the_current_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("".join(LINES))
    monkeypatch.chdir(tmp_path)
    assert load_own("text_char", ".").name == describe("text_char", ".").name == tmp_path.name


def test_files_are_joined_at_line_starts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to be\n" * 60 + "the end")
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfonce upon\n" + b"a time\n" * 60)
    corpus = load_own("text_word", str(tmp_path))
    assert corpus.vocabulary == ("to", "be", "<eos>", "the", "end", "once", "upon", "a", "time")
    corpus = load_own("text_char", str(tmp_path))
    whole = "to be\n" * 60 + "the end\nonce upon\n" + "a time\n" * 60
    assert "".join(written(corpus, split) for split in SPLITS) == whole


@given(st.lists(st.integers(0, 40), min_size=60, max_size=60), st.booleans())
@settings(max_examples=50, deadline=None, derandomize=True)
def test_the_line_ends_are_the_nearest(lengths: list[int], ended: bool) -> None:
    text = "\n".join("x" * length for length in lengths) + "\n" * ended
    ends = [position + 1 for position, character in enumerate(text) if character == "\n"]
    nearest = [min(ends, key=lambda end: abs(end - share * len(text))) for share in (0.9, 0.95)]
    assume(0 < nearest[0] < nearest[1] < len(text))
    train, valid, _ = _divided(Path("a.txt"), [text])
    assert [len(train), len(train) + len(valid)] == nearest


@pytest.mark.parametrize("valid", ["valid", "validation", "val", "dev"])
def test_a_split_folder_is_read_as_it_is(tmp_path: Path, valid: str) -> None:
    for name, lines in (("train", LINES[:3]), (valid, LINES[3:4]), ("test", LINES[4:6])):
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    corpus = load_own("text_word", str(tmp_path))
    assert written(corpus, "valid", " ") == LINES[3].replace("\n", " <eos>")
    assert written(corpus, "test", " ") == "".join(LINES[4:6]).replace("\n", " <eos> ").strip()


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (("train", "test"), "has train.txt, test.txt but lacks valid.txt:"),
        (("Train", "dev"), "has Train.txt, dev.txt but lacks test.txt:"),
        (("notes", "test"), "has test.txt but lacks train.txt, valid.txt:"),
        ((), r"has no \.txt file"),
    ],
)
def test_a_part_of_the_splits_is_refused(tmp_path: Path, files: tuple, missing: str) -> None:
    """Joined and split again, the test text would be trained on."""
    for name in files:
        (tmp_path / f"{name}.txt").write_text("".join(LINES))
    with pytest.raises(InputError, match=missing):
        describe("text_word", str(tmp_path))


def test_the_sizes_are_those_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(LINES))
    info, corpus = (call("text_word", str(path)) for call in (describe, load_own))
    assert (info.num_train, info.num_valid, info.num_test) == tuple(
        len(getattr(corpus, split)) for split in SPLITS
    )
    assert (info.vocabulary, info.level) == (len(corpus.vocabulary), "word")
    path.write_text("".join(LINES[:50]))
    assert describe("text_word", str(path)).num_train < info.num_train


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no file or folder"),
        ("", "is empty"),
        ("one line", "can't be split at line ends: it has 8 characters and 0 line ends"),
        ("first\nsecond", "can't be split at line ends: it has 12 characters and 1 line ends"),
    ],
)
def test_bad_texts_are_one_line(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "a.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=words):
        describe("text_char", str(path))


def test_no_folder_is_one_line() -> None:
    with pytest.raises(InputError, match=r"text_char needs your text: --config\.data\.dir=FILE"):
        describe("text_char", None)
