"""Texts of one's own: three files of a folder, or any text, split; by characters, words or BPE."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.home import (
    existing,
    expanded,
    name_of,
    parts_of,
    split_in_name,
    split_of,
    unread,
    walk,
)
from mimetic_jax.data.text import bpe, token_files
from mimetic_jax.data.text.tokens import Corpus, corpus_of, starts

LEVELS = {
    "text_char": "char",
    "text_word": "word",
    "text_bpe": "bpe",
    "text_tokens": "tokens",
}
"""What a token is, by the name in configurations."""

_FILES = {"train": "train.txt", "validation": "valid.txt", "test": "test.txt"}
_PROSE = frozenset((".txt", ".text", ".tokens", ".raw"))
"""Suffixes of texts, whose names may tell splits; test.py and train.md tell none."""
_OTHERS = """
.md .markdown .rst .org .tex .adoc
.py .pyi .pyx .c .h .cc .cpp .cxx .hh .hpp .cu .cuh .java .kt .scala .cs .fs .go .rs .zig .js .mjs
.jsx .ts .tsx .rb .php .swift .m .mm .r .jl .lua .pl .pm .sh .bash .zsh .fish .sql .hs .ml .mli
.lisp .el .clj .scm .erl .ex .exs .f .f90 .f95 .nim .d .dart .v .sv .vhd .asm .s .tcl .vim .awk
"""
_TEXTS = _PROSE | frozenset(_OTHERS.split())


def load_own(name: str, data_dir: str | None, vocabulary: int = 0) -> Corpus:
    """Load a text of one's own: "text_char" of characters, "text_word" of words, "text_bpe" of byte
    pairs, see `bpe.encoded`; or "text_tokens", files of token ids, see `token_files.load`.

    A folder with train.txt, valid.txt (validation, val, dev) and test.txt, or with such words at
    the start or the end of three .txt files' names, is read as it is split. Of another folder all
    files of text and of source code, also in folders below it, are joined in order of their names,
    each at the start of a line. Hidden files, empty ones and those that aren't UTF-8 are left out,
    symbolic links are followed, each real folder once. That text, or that of a single file, is
    split at the nearest line ends in training, validation and test text. The latter two have 5 %
    of the characters each, at most 100,000.

    Args:
        vocabulary: the number of tokens: of "text_bpe", to learn, 0 for 8,192; of "text_tokens", 0
            for the largest id + 1.
    """
    level = LEVELS[name]
    suffixes = token_files.SUFFIXES if level == "tokens" else _TEXTS
    if not data_dir:
        kinds = "token ids" if level == "tokens" else "text or source code"
        raise InputError(f"{name} needs your text: --config.data.dir=FILE, or a folder of {kinds}")
    if vocabulary and level in ("char", "word"):
        raise InputError(
            f"data.vocabulary {vocabulary} is of text_bpe and text_tokens: {name} counts its own"
        )
    path = existing(expanded(data_dir))
    files, others = _files(path, suffixes)
    stamps = tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    return _read(level, path, stamps, others, vocabulary)


@functools.lru_cache(maxsize=1)  # a run asks for the sizes before it asks for the tokens
def _read(
    level: str,
    path: Path,
    stamps: tuple[tuple[Path, int, int], ...],
    others: tuple[str, ...],
    vocabulary: int,
) -> Corpus:
    files = [file for file, *_ in stamps]
    if level == "tokens":
        corpus = token_files.load(path, files, vocabulary)
        return _noted(corpus, unread(others))
    binary: list[str] = []
    if split := _splits(path, files):
        texts = ["".join(parts_of(file)) for file in split]
        others += tuple(file.name for file in files if file not in split)
    else:
        texts = _divided(path, _contents(path, files, binary))
    if level == "bpe":
        corpus = bpe.encoded(name_of(path), texts, vocabulary)
    else:
        corpus = corpus_of(name_of(path), [iter([text]) for text in texts], level)
    undecoded = f"not UTF-8, left out: {len(binary)} ({binary[0]}, ...)" if binary else ""
    return _noted(corpus, unread(others), undecoded)


def _noted(corpus: Corpus, *notes: str) -> Corpus:
    return dataclasses.replace(corpus, notes="; ".join(filter(None, (*notes, corpus.notes))))


def _files(path: Path, suffixes: Iterable[str]) -> tuple[list[Path], tuple[str, ...]]:
    """The texts, and the names of the other files of a folder, hidden ones excepted."""
    if path.is_file():
        return [path], ()
    below = sorted(folder / name for folder, names in walk(path) for name in names)
    visible = [file for file in below if file.is_file()]
    texts = [file for file in visible if file.suffix.lower() in suffixes]
    others = tuple(file.name for file in visible if file.suffix.lower() not in suffixes)
    if not texts:
        known = ", ".join(sorted(suffixes)[:4])
        raise InputError(
            f"{path} has no file that is read here, such as {known}"
            f"{others and f'; {unread(others)}'}"
        )
    return texts, others


def _contents(path: Path, files: list[Path], binary: list[str]) -> list[str]:
    """The text of each file; of a folder without those that are empty or aren't UTF-8."""
    if path.is_file():
        return ["".join(parts_of(path))]
    texts = []
    for file in files:
        if not file.stat().st_size:
            continue
        try:
            text = "".join(parts_of(file))
        except InputError as error:
            if not isinstance(error.__cause__, UnicodeDecodeError):
                raise
            binary.append(file.name)
            continue
        if "\0" in text:
            binary.append(file.name)
        else:
            texts.append(text)
    return texts


def _splits(folder: Path, files: list[Path]) -> list[Path]:
    """The training, validation and test file; none if no names tell splits.

    In a folder of source code, or of other files than .txt, only all three tell any.
    """
    if not folder.is_dir():
        return []
    prose = [file for file in files if file.suffix.lower() in _PROSE]
    told = {file: split for file in prose if (split := split_of(file.relative_to(folder)))}
    if not told:
        told = {file: split for file in prose if (split := split_in_name(file.stem))}
        if "train" not in told.values() or len({*told.values()}) == 1:
            return []  # words of a title, such as "A test.txt"
    found = {split: [file for file in told if told[file] == split] for split in _FILES}
    mixed = len(prose) < len(files)
    if mixed and any(len(several) != 1 for several in found.values()):
        return []
    for split, several in found.items():
        if len(several) > 1:
            raise InputError(
                f"{folder} has {len(several)} {split} texts, {several[0].relative_to(folder)}, "
                f"{several[1].relative_to(folder)}, ...: join them in one {_FILES[split]}"
            )
    if missing := [_FILES[split] for split, one in found.items() if not one]:
        raise InputError(
            f"{folder} has {', '.join(file.name for one in found.values() for file in one)} but "
            f"lacks {', '.join(missing)}: add it, or join the texts in one file, which is split "
            "automatically"
        )
    return [one[0] for one in found.values()]


def _divided(path: Path, files: list[str]) -> list[str]:
    if not files:
        raise InputError(f"{path} has no text: its files are empty or aren't UTF-8")
    # Without a line end, a file's last word and the next one's first would be one.
    text = "\n".join([*(file.removesuffix("\n") for file in files[:-1]), files[-1]])
    first, second = (_line_end(text, start) for start in starts(len(text)))
    texts = [text[:first], text[first:second], text[second:]]
    if not all(texts):
        ends = text.count("\n")
        raise InputError(
            f"{path} can't be split at line ends: it has {len(text):,} characters and "
            f"{ends:,} line ends; break it into lines, or give train.txt, valid.txt and test.txt"
        )
    return texts


def _line_end(text: str, position: float) -> int:
    """The end of a line that is nearest to a position, the earlier of two."""
    before = text.rfind("\n", 0, int(position)) + 1
    after = text.find("\n", int(position)) + 1
    return after if after and after - position < position - before else before
