"""A text of one's own: as it is split, or split at line ends, with nothing lost between."""

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mimetic_jax.data.text import text_files, tokens
from mimetic_jax.data.text.corpus import describe
from mimetic_jax.data.text.text_files import load_own
from tests.data.made import refused, write

LINES = [f"line {n} of a text, äöü\n" for n in range(100)]
SPLITS = ("train", "valid", "test")


TEXT = "".join(LINES)


def written(corpus, split: str, between: str = "") -> str:
    return between.join(corpus.vocabulary[token] for token in getattr(corpus, split))


def whole(path: Path) -> str:
    """The text of a file or folder, its parts joined."""
    corpus = load_own("text_char", str(path))
    return "".join(written(corpus, split) for split in SPLITS)


def test_a_text_is_split_at_line_ends_and_joins_again(tmp_path):
    write(tmp_path, {"notes.md": TEXT})
    corpus = load_own("text_char", str(tmp_path / "notes.md"))
    assert corpus.name == "notes"
    parts = [written(corpus, split) for split in SPLITS]
    assert "".join(parts) == TEXT
    assert all(part.endswith("\n") for part in parts)
    assert [part.count("\n") for part in parts] == pytest.approx([90, 5, 5], abs=1)


def test_the_current_folder_has_a_name(tmp_path, monkeypatch):
    write(tmp_path, {"a.txt": TEXT})
    monkeypatch.chdir(tmp_path)
    assert load_own("text_char", ".").name == describe("text_char", ".").name == tmp_path.name


def test_files_are_joined_at_line_starts(tmp_path):
    first, second = "to be\n" * 60 + "the end", "the end\n" + "a time\n" * 60
    write(tmp_path, {"a.txt": first, "b.txt": f"\ufeff{second}"})
    corpus = load_own("text_word", str(tmp_path))
    assert corpus.vocabulary == ("to", "be", "<eos>", "the", "end", "a", "time", "<unk>")
    assert whole(tmp_path) == f"{first}\n{second}"


@given(st.lists(st.integers(0, 40), min_size=60, max_size=60), st.booleans())
@settings(max_examples=50, deadline=None, derandomize=True)
def test_the_line_ends_are_the_nearest(lengths, ended):
    text = "\n".join("x" * length for length in lengths) + "\n" * ended
    ends = [position + 1 for position, character in enumerate(text) if character == "\n"]
    nearest = [min(ends, key=lambda end: abs(end - share * len(text))) for share in (0.9, 0.95)]
    assume(0 < nearest[0] < nearest[1] < len(text))
    (train, valid, _), _ = text_files._divided(Path("a.txt"), {Path("a.txt"): text})
    assert [len(train), len(train) + len(valid)] == nearest


def test_what_is_tested_of_a_long_text_is_bounded(monkeypatch):
    monkeypatch.setattr(tokens, "_MOST_TESTED", 40)
    parts, _ = text_files._divided(Path("a.txt"), {Path("a.txt"): "to be\n" * 1000})
    assert [len(part) for part in parts] == [5922, 36, 42]


def test_of_many_files_whole_ones_are_held_out(tmp_path):
    """The same ones by any names, which the notes list; a text that is there twice counts once."""
    texts = [f"text {n:02d}\n{TEXT}" for n in range(40)]
    write(tmp_path / "a", {f"{n:02d}.txt": text for n, text in enumerate(texts)})
    write(tmp_path / "b", {f"{39 - n:02d}/b.md": text for n, text in enumerate(texts)})
    (tmp_path / "a" / "00.md").symlink_to(tmp_path / "a" / "39.txt")
    write(tmp_path / "a", {"copy.txt": texts[7].replace("\n", "\r\n")})
    held_out = []
    for folder in "ab":
        corpus = load_own("text_char", str(tmp_path / folder))
        parts = [written(corpus, split) for split in SPLITS]
        inside = [[text for text in texts if text in part] for part in parts]
        assert [len(files) for files in inside] == [36, 2, 2]
        assert sorted(itertools.chain(*inside)) == texts
        assert sum(map(len, parts)) == sum(map(len, texts))
        assert inside[2] != texts[-2:]
        held_out.append([{*files} for files in inside])
    assert held_out[0] == held_out[1]
    unread, *said = load_own("text_char", str(tmp_path / "a")).notes.split("; tested on ")
    assert unread == "left out: 2 (copy.txt of 07.txt, 00.md of 39.txt: copies)"
    tested, validated = said[0].split("; validated on ")
    for names, files in ((tested, held_out[0][2]), (validated, held_out[0][1])):
        assert names == ", ".join(f"{n:02d}.txt" for n in range(40) if texts[n] in files)


def test_of_long_files_the_end_is_held_out(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "_MOST_TESTED", 200)
    texts = {f"{n}.txt": f"text {n}\n" + TEXT for n in range(10)}
    corpus = load_own("text_char", str(write(tmp_path, texts)))
    train, *held_out = (written(corpus, split) for split in SPLITS)
    for part, purpose in zip(held_out, ("validated", "tested"), strict=True):
        (name,) = re.findall(rf"{purpose} on the end of (\d.txt)", corpus.notes)
        assert texts[name].endswith(part)
        assert len(part) == pytest.approx(200, abs=len(LINES[0]))
        assert texts[name].removesuffix(part) in train
        assert texts[name] not in train


def test_a_long_file_without_line_ends_is_trained_on(tmp_path):
    """It can't be cut, and whole it would be most of what is tested."""
    texts = {f"{n}.txt": f"text {n}\n" + TEXT for n in range(12)}
    size = sum(map(len, texts.values()))
    corpora = [
        load_own("text_char", str(write(tmp_path / str(n), {**texts, "min.js": f"{n} " * size})))
        for n in range(4)
    ]
    for corpus in corpora:
        assert "min.js" not in corpus.notes
        _, *held_out = (len(written(corpus, split)) for split in SPLITS)
        assert max(held_out) < size


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (("train", "test"), "has train.txt, test.txt but lacks valid.txt:"),
        (("Train", "dev"), "has Train.txt, dev.txt but lacks test.txt:"),
        (("train-0", "train-1", "a test"), "2 train texts, train-0.txt, train-1.txt, ...: join"),
        (("train/a", "test/a"), "has a.txt, a.txt but lacks valid.txt"),
    ],
)
def test_a_part_of_the_splits_is_refused(tmp_path, files, missing):
    """Joined and split again, the test text would be trained on."""
    write(tmp_path, {f"{name}.txt": TEXT for name in files})
    refused(lambda: describe("text_word", str(tmp_path)), missing)


@pytest.mark.parametrize(
    ("form", "valid"),
    [
        *(("{}.txt", name) for name in ("valid", "validation", "val", "dev")),
        *((form, "valid") for form in ("{}.TXT", "wiki.{}.txt", "{}-00000.txt", "{}/part.txt")),
    ],
)
def test_a_split_folder_is_read_as_it_is(tmp_path, form, valid):
    texts = ["".join(lines) for lines in (LINES[:3], LINES[3:4], LINES[4:6])]
    named = zip(("train", valid, "test"), texts, strict=True)
    write(tmp_path, {form.format(name): text for name, text in named})
    write(tmp_path, {"notes.txt": "none of the three"})
    corpus = load_own("text_char", str(tmp_path))
    assert corpus.notes == "left out: 1 (notes.txt: no split in its name)"
    assert [written(corpus, split) for split in SPLITS] == texts


def test_titles_tell_no_splits(tmp_path):
    texts = {name: f"{name}\n{TEXT}" for name in ("A test.txt", "The last.txt", "c.txt")}
    assert whole(write(tmp_path, texts)) == "".join(texts.values())


def test_which_files_of_a_folder_are_read(tmp_path):
    """Those below it and in capitals, too; nothing that a system has put there."""
    files = {"a.TXT": "".join(LINES[:50]), "sub/b.txt": "".join(LINES[50:]), "notes.pdf": "x"}
    files |= {"._a.txt": b"\0\5\x16\7\xb0", ".a.txt": "hidden\n", "README": "x"}
    assert whole(write(tmp_path, files | {"__MACOSX/sub/b.txt": b"\xff"})) == TEXT
    said = str(describe("text_char", str(tmp_path)))
    assert said.endswith("left out: 2 (README, notes.pdf: no suffix of a text)")


def test_source_code_is_a_text_and_its_names_tell_no_splits(tmp_path):
    """Nor are files of no bytes, of another encoding or of zeros read."""
    files = {"a/dev.py": "".join(LINES[:40]), "a/test.py": "".join(LINES[40:70])}
    files |= {
        "train/readme.MD": "".join(LINES[70:]),
        "z/zeros.txt": "a\n\n\0b",
        "a/__init__.py": "",
    }
    assert whole(write(tmp_path, files | {"z/latin.py": "a\r\n# ä".encode("latin-1")})) == TEXT
    assert load_own("text_char", str(tmp_path)).notes == (
        "left out: 3 (a/__init__.py: empty; line 2 of z/latin.py: not UTF-8; "
        "line 3 of z/zeros.txt: a zero byte)"
    )


def test_three_named_texts_are_splits_beside_source_code(tmp_path):
    files = {f"{split}.txt": LINES[n] for n, split in enumerate(SPLITS)}
    write(tmp_path, files | {"prepare.py": "x\n" * 50})
    corpus = load_own("text_char", str(tmp_path))
    assert [written(corpus, split) for split in SPLITS] == LINES[:3]
    assert corpus.notes == "left out: 1 (prepare.py: no split in its name)"


def test_folders_without_text(tmp_path):
    write(tmp_path, {"a.png": "x"})
    words = "has no file that is read here", "left out: 1 (a.png: other suffixes)"
    refused(lambda: load_own("text_char", str(tmp_path)), *words)
    write(tmp_path, {"a.py": b"\xff"})
    refused(lambda: load_own("text_char", str(tmp_path)), "has no text: its files are empty or")


@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize("name", ["text_char", "text_word"])
def test_line_ends_of_other_systems_are_the_same_text(tmp_path, name, end):
    write(tmp_path, {"a/a.txt": TEXT, "b/a.txt": TEXT.replace("\n", end)})
    one, other = (load_own(name, str(tmp_path / folder)).fingerprint() for folder in "ab")
    assert one == other


def test_words_that_training_does_not_show_are_unknown(tmp_path):
    write(tmp_path, {"train.txt": "a cat and a dog\nand once a bird\n"})
    write(tmp_path, {"valid.txt": "a fish and once\n", "test.txt": "and an ant\n"})
    corpus = load_own("text_word", str(tmp_path))
    assert corpus.vocabulary == ("a", "and", "<eos>", "<unk>")
    assert written(corpus, "train", " ") == "a <unk> and a <unk> <eos> and <unk> a <unk> <eos>"
    assert written(corpus, "valid", " ") == "a <unk> and <unk> <eos>"
    assert written(corpus, "test", " ") == "and <unk> <unk> <eos>"


def test_words_that_are_written_as_ours_are_words(tmp_path):
    text = "a <unk> <eos> \\<unk>, x<eos> \\<eos>\n"
    write(tmp_path, {"train.txt": 2 * text, "valid.txt": text, "test.txt": "once <unk>\n"})
    corpus = load_own("text_word", str(tmp_path))
    words = ("a", "\\<unk>", "\\<eos>", "\\<unk>,", "x<eos>", "\\\\<eos>", "<eos>", "<unk>")
    assert corpus.vocabulary == words
    assert corpus.valid.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert corpus.test.tolist() == [7, 1, 6]
    assert corpus.notes == ""
    write(tmp_path, {"test.txt": text})
    assert load_own("text_word", str(tmp_path)).notes == "test.txt is a copy of valid.txt"


def test_the_sizes_are_those_of_the_text(tmp_path):
    path = tmp_path / "a.txt"
    write(tmp_path, {"a.txt": TEXT})
    info, corpus = (call("text_word", str(path)) for call in (describe, load_own))
    expected = tuple(len(getattr(corpus, split)) for split in SPLITS)
    assert (info.num_train, info.num_valid, info.num_test) == expected
    assert (info.vocabulary, info.level) == (len(corpus.vocabulary), "word")
    write(tmp_path, {"a.txt": "".join(LINES[:50])})
    assert describe("text_word", str(path)).num_train < info.num_train


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no file or folder"),
        ("", "is empty"),
        ("one line", "can't be split at line ends: it has 8 characters and 0 line ends"),
        ("first\nsecond", "can't be split at line ends: it has 12 characters and 1 line ends"),
        ("version https://git-lfs.github.com/spec/v1\n" * 20, "a.txt is a Git LFS pointer"),
        ("a\nb".encode("utf-16-le").decode(), "a.txt, line 1 isn't UTF-8: byte 1 is 0x00"),
    ],
)
def test_bad_texts_are_one_line(tmp_path, content, words):
    if content is not None:
        write(tmp_path, {"a.txt": content})
    refused(lambda: describe("text_char", str(tmp_path / "a.txt")), words)
    words = "text_char needs your text. Pass --data-dir=FILE"
    refused(lambda: describe("text_char", None), words)


def test_texts_behind_links_are_read_once(tmp_path):
    write(tmp_path, {"data/a.txt": TEXT, "elsewhere/b.txt": "zebra\n" * 50})
    (tmp_path / "data" / "books").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "again").symlink_to(tmp_path / "data")
    assert whole(tmp_path / "data") == TEXT + "zebra\n" * 50
