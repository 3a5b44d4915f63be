"""A text of one's own: as it is split, or split at line ends, with nothing lost between."""

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.text import text_files
from mimetic_jax.data.text.corpus import describe
from mimetic_jax.data.text.text_files import load_own

LINES = [f"line {n} of a text, äöü\n" for n in range(100)]
SPLITS = ("train", "valid", "test")


def written(corpus, split: str, between: str = "") -> str:
    return between.join(corpus.vocabulary[token] for token in getattr(corpus, split))


def test_a_text_is_split_at_line_ends_and_joins_again(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("".join(LINES))
    corpus = load_own("text_char", str(path))
    assert corpus.name == "notes"
    parts = [written(corpus, split) for split in SPLITS]
    assert "".join(parts) == "".join(LINES)
    assert all(part.endswith("\n") for part in parts)
    assert [part.count("\n") for part in parts] == pytest.approx([90, 5, 5], abs=1)


def test_the_current_folder_has_a_name(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("".join(LINES))
    monkeypatch.chdir(tmp_path)
    assert load_own("text_char", ".").name == describe("text_char", ".").name == tmp_path.name


def test_files_are_joined_at_line_starts(tmp_path):
    (tmp_path / "a.txt").write_text("to be\n" * 60 + "the end")
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfthe end\n" + b"a time\n" * 60)
    corpus = load_own("text_word", str(tmp_path))
    assert corpus.vocabulary == ("to", "be", "<eos>", "the", "end", "a", "time", "<unk>")
    corpus = load_own("text_char", str(tmp_path))
    whole = "to be\n" * 60 + "the end\nthe end\n" + "a time\n" * 60
    assert "".join(written(corpus, split) for split in SPLITS) == whole


@given(st.lists(st.integers(0, 40), min_size=60, max_size=60), st.booleans())
@settings(max_examples=50, deadline=None, derandomize=True)
def test_the_line_ends_are_the_nearest(lengths, ended):
    text = "\n".join("x" * length for length in lengths) + "\n" * ended
    ends = [position + 1 for position, character in enumerate(text) if character == "\n"]
    nearest = [min(ends, key=lambda end: abs(end - share * len(text))) for share in (0.9, 0.95)]
    assume(0 < nearest[0] < nearest[1] < len(text))
    train, valid, _ = text_files._divided(Path("a.txt"), [text])
    assert [len(train), len(train) + len(valid)] == nearest


def test_what_is_tested_of_a_long_text_is_bounded(monkeypatch):
    monkeypatch.setattr(text_files, "_MOST_TESTED", 40)
    parts = text_files._divided(Path("a.txt"), ["to be\n" * 1000])
    assert [len(part) for part in parts] == [5922, 36, 42]


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (("train", "test"), "has train.txt, test.txt but lacks valid.txt:"),
        (("Train", "dev"), "has Train.txt, dev.txt but lacks test.txt:"),
        (
            ("train-0", "train-1", "a test"),
            "2 train texts, train-0.txt, train-1.txt, .*: join",
        ),
        (("train/a", "test/a"), "has a.txt, a.txt but lacks valid.txt"),
        ((), r"has no \.txt file"),
    ],
)
def test_a_part_of_the_splits_is_refused(tmp_path, files, missing):
    """Joined and split again, the test text would be trained on."""
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.txt").write_text("".join(LINES))
    with pytest.raises(InputError, match=missing):
        describe("text_word", str(tmp_path))


@pytest.mark.parametrize(
    ("form", "valid"),
    [
        *(("{}.txt", name) for name in ("valid", "validation", "val", "dev")),
        *((form, "valid") for form in ("{}.TXT", "wiki.{}.txt", "{}-00000.txt", "{}/part.txt")),
    ],
)
def test_a_split_folder_is_read_as_it_is(tmp_path, form, valid):
    (tmp_path / "notes.txt").write_text("none of the three")
    for name, lines in (("train", LINES[:3]), (valid, LINES[3:4]), ("test", LINES[4:6])):
        path = tmp_path / form.format(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(lines))
    corpus = load_own("text_char", str(tmp_path))
    assert corpus.left_out == "other files, left out: 1 (.txt 1)"
    expected = ["".join(lines) for lines in (LINES[:3], LINES[3:4], LINES[4:6])]
    assert [written(corpus, split) for split in SPLITS] == expected


def test_titles_tell_no_splits(tmp_path):
    for number, name in enumerate(("A test", "The last train", "c")):
        (tmp_path / f"{name.partition(' train')[0]}.txt").write_text("".join(LINES[number::3]))
    corpus = load_own("text_char", str(tmp_path))
    assert sum(written(corpus, split).count("\n") for split in SPLITS) == 100


def test_which_files_of_a_folder_are_read(tmp_path):
    """Those below it and in capitals, too; nothing that a system has put there."""
    half = len(LINES) // 2
    for name, content in {
        "a.TXT": "".join(LINES[:half]).encode(),
        "sub/b.txt": "".join(LINES[half:]).encode(),
        "._a.txt": b"\0\5\x16\7\xb0",
        ".a.txt": b"hidden\n",
        "__MACOSX/sub/b.txt": b"\xff",
        "notes.md": b"x",
        "README": b"x",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    corpus = load_own("text_char", str(tmp_path))
    assert "".join(written(corpus, split) for split in SPLITS) == "".join(LINES)
    said = str(describe("text_char", str(tmp_path)))
    assert said.endswith("other files, left out: 2 (.md 1, no suffix 1)")


@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize("name", ["text_char", "text_word"])
def test_line_ends_of_other_systems_are_the_same_text(tmp_path, name, end):
    found = []
    for line_end in ("\n", end):
        path = tmp_path / "a.txt"
        path.write_bytes("".join(LINES).replace("\n", line_end).encode())
        found.append(load_own(name, str(path)).fingerprint())
    assert found[0] == found[1]


def test_words_that_training_does_not_show_are_unknown(tmp_path):
    for name, content in {
        "train": "a cat and a dog\nand once a bird\n",
        "valid": "a fish and once\n",
        "test": "and an ant\n",
    }.items():
        (tmp_path / f"{name}.txt").write_text(content)
    corpus = load_own("text_word", str(tmp_path))
    assert corpus.vocabulary == ("a", "and", "<eos>", "<unk>")
    assert written(corpus, "train", " ") == "a <unk> and a <unk> <eos> and <unk> a <unk> <eos>"
    assert written(corpus, "valid", " ") == "a <unk> and <unk> <eos>"
    assert written(corpus, "test", " ") == "and <unk> <unk> <eos>"
    (tmp_path / "train.txt").write_text("a <unk> and once\n")  # prepared by its author
    corpus = load_own("text_word", str(tmp_path))
    assert corpus.vocabulary == ("a", "<unk>", "and", "once", "<eos>")
    assert written(corpus, "valid", " ") == "a <unk> and once <eos>"


def test_the_sizes_are_those_of_the_text(tmp_path):
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
def test_bad_texts_are_one_line(tmp_path, content, words):
    path = tmp_path / "a.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=r"text_char needs your text: --config\.data\.dir=FILE"):
        describe("text_char", None)
    with pytest.raises(InputError, match=words):
        describe("text_char", str(path))


def test_texts_behind_links_are_read_once(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data" / "a.txt").write_text("".join(LINES))
    (tmp_path / "elsewhere" / "b.txt").write_text("zebra\n" * 50)
    (tmp_path / "data" / "books").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "again").symlink_to(tmp_path / "data")
    corpus = load_own("text_char", str(tmp_path / "data"))
    whole = "".join(written(corpus, split) for split in SPLITS)
    assert whole == "".join(LINES) + "zebra\n" * 50


def test_a_pointer_of_git_lfs_is_no_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4f\nsize 1334\n" * 20)
    with pytest.raises(InputError, match=r"a\.txt is a Git LFS pointer"):
        load_own("text_char", str(path))
