"""Texts as token ids: the published rules and counts, and errors that name the place."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from mimetic_jax.data import textfiles
from mimetic_jax.data.text import corpus as text
from tests.data import made

SPLITS = ("train", "valid", "test")
TRAIN, VALID, TEST = (f"ptb.{split}.txt" for split in SPLITS)
WORDS = {TRAIN: " the cat sat \n the <unk> \n", VALID: " a cat \n", TEST: " the dog \n"}


def symbols(corpus: text.Corpus, split: str) -> list[str]:
    return [corpus.vocabulary[token] for token in getattr(corpus, split)]


def refused(name: str, data_dir: Path | None, *words: str) -> None:
    made.refused(lambda: text.load_text(name, data_dir and str(data_dir)), *words)


@pytest.mark.parametrize("below", ["", "ptb", "simple-examples/data"])
def test_words(tmp_path, below):
    made.write(tmp_path / below, WORDS)
    corpus = text.load_text("ptb_word", str(tmp_path))
    assert corpus.name == "ptb_word"
    assert corpus.vocabulary == ("the", "cat", "sat", "<eos>", "<unk>")
    assert symbols(corpus, "train") == ["the", "cat", "sat", "<eos>", "the", "<unk>", "<eos>"]
    assert corpus.valid.tolist() == [4, 1, 3]
    assert symbols(corpus, "test") == ["the", "<unk>", "<eos>"]


@pytest.mark.parametrize("name", ["wikitext2", "wikitext103"])
def test_wikitext_keeps_empty_lines_as_ends(tmp_path, name):
    """Blank lines count, and spaces other than ASCII's separate words, as in Python's split."""
    folder = tmp_path / name.replace("wikitext", "wikitext-")
    made.write(folder, {f"wiki.{split}.tokens": "x\n" for split in SPLITS})
    made.write(folder, {"wiki.train.tokens": " \n = Títle = \n \n x\u00a0<unk> \n"})
    corpus = text.load_text(name, str(tmp_path))
    assert " ".join(symbols(corpus, "train")) == "<eos> = Títle = <eos> <eos> x <unk> <eos>"


def test_fingerprints_are_of_texts(tmp_path):
    """Whether the last line ends with a newline or not."""

    def fingerprint(changes: dict[str, str]) -> str:
        made.write(tmp_path, WORDS | changes)
        return text.load_text("ptb_word", str(tmp_path)).fingerprint()

    same = fingerprint({})
    assert fingerprint({name: content.rstrip() for name, content in WORDS.items()}) == same
    others = {TEST: " the cat \n"}, {TRAIN: WORDS[TRAIN] * 2}
    assert len({same, *map(fingerprint, others)}) == 3


def test_characters_are_those_of_mikolovs_files(tmp_path):
    """One space between words, none around them, newlines kept."""
    made.write(tmp_path, WORDS)
    corpus = text.load_text("ptb_char", str(tmp_path))
    assert "".join(symbols(corpus, "train")) == "the cat sat\nthe <unk>\n"
    assert "".join(symbols(corpus, "test")) == "the dog\n"
    whole = "the cat sat\nthe <unk>\na cat\nthe dog\n"
    assert corpus.vocabulary == tuple(dict.fromkeys(whole))


@pytest.mark.parametrize("level", ["word", "char"])
def test_parts_of_a_large_file_join(tmp_path, monkeypatch, level):
    """However small the parts are; a character of several bytes isn't cut either."""
    content = "äöü one\n\n日本 two äöü\nthree\n" * 3
    file = tmp_path / "a.txt"
    file.write_bytes(content.encode())

    def read() -> text.Corpus:
        return text.corpus_of("a", [text.read_parts(file) for _ in SPLITS], level)

    whole = read()
    for size in (1, 2, 3, 7, 50):
        monkeypatch.setattr(textfiles, "_CHUNK", size)
        parts = read()
        assert parts.fingerprint() == whole.fingerprint()
    expected = list(content) if level == "char" else content.replace("\n", " <eos> ").split()
    assert symbols(whole, "valid") == expected


@pytest.mark.parametrize("name", ["ptb_word", "wikitext103"])
def test_missing_files_are_listed_with_their_origin(tmp_path, name):
    info = text.describe(name)
    expected = [*info.files, info.source]
    refused(name, tmp_path, f"no {name} in {tmp_path}: ", *expected)
    refused(name, tmp_path / "no", f"no {name} in {tmp_path / 'no'} (no such folder): ")
    refused(name, None, f"{name} needs the folder", *expected)
    (tmp_path / info.files[1]).write_text("x\n")
    refused(name, tmp_path, f"({tmp_path} lacks {info.files[0]}, {info.files[2]})", *expected)


def test_python_docs_need_no_folder():
    """The counts are those of the installed Python's text, so nothing differs when it is opened."""
    info, corpus = text.describe("python_docs"), text.load_text("python_docs", None)
    topics = pytest.importorskip("pydoc_data.topics").topics
    whole = "\n".join(content for _, content in sorted(topics.items()))
    assert "".join("".join(symbols(corpus, split)) for split in SPLITS) == whole
    assert corpus.vocabulary == tuple(dict.fromkeys(whole))
    found = tuple(len(getattr(corpus, split)) for split in SPLITS)
    assert found == (info.num_train, info.num_valid, info.num_test)
    assert len(corpus.vocabulary) == info.vocabulary
    np.testing.assert_allclose(np.divide(found, len(whole)), (0.9, 0.05, 0.05), atol=1e-4)


def test_python_without_documentation(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    words = "python_docs is pydoc_data.topics, which this Python", "use a complete CPython"
    made.refused(lambda: text.describe("python_docs"), *words)


def test_files_that_are_empty_or_not_utf_8(tmp_path, monkeypatch):
    made.write(tmp_path, WORDS)
    valid = tmp_path / VALID
    valid.write_bytes(b"")
    refused("ptb_word", tmp_path, f"{valid} is empty")
    valid.write_bytes(b"\xef\xbb\xbf")
    refused("ptb_char", tmp_path, "the valid text of ptb_char is empty")
    valid.write_bytes(b"fine\n and \xff not\n")
    for chunk in (1, 2**22):
        monkeypatch.setattr(textfiles, "_CHUNK", chunk)
        refused("ptb_word", tmp_path, f"{valid}, line 2 isn't UTF-8: byte 10 is 0xff")


FOLDER = os.environ.get("MIMETIC_TEXT_DIR", "")
real = pytest.mark.skipif(not FOLDER, reason="MIMETIC_TEXT_DIR names no folder")


@real
@pytest.mark.parametrize("name", ["ptb_word", "ptb_char", "wikitext2"])
def test_published_counts(name):
    info, corpus = text.describe(name), text.load_text(name, FOLDER)
    assert len(corpus.vocabulary) == info.vocabulary
    found = tuple(len(getattr(corpus, split)) for split in SPLITS)
    assert found == (info.num_train, info.num_valid, info.num_test)
    for split, file in zip(SPLITS, info.files, strict=True):
        if info.level == "word":
            words = (Path(FOLDER) / info.folders[0] / file).read_text().split("\n")[:-1]
            expected = [word for line in words for word in (*line.split(), "<eos>")]
            assert symbols(corpus, split) == expected


@real
def test_characters_of_the_real_words_are_mikolovs():
    """His ptb.char.*.txt have a space after each character, and "_" for a space."""
    corpus = text.load_text("ptb_char", FOLDER)
    for split in SPLITS:
        file = Path(FOLDER) / "ptb" / f"ptb.char.{split}.txt"
        if not file.exists():
            pytest.skip(f"{file} is missing")
        expected = file.read_text().replace(" ", "").replace("_", " ")
        assert "".join(symbols(corpus, split)) == expected
