"""Texts of one's own: three files of a folder, or any text, split; by characters, words or BPE."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.paths import (
    check_exists,
    describe_skipped,
    group_copies,
    local_path,
    name_of,
    split_in_name,
    split_of,
    walk,
)
from mimetic_jax.data.text import bpe, token_files
from mimetic_jax.data.text.tokens import Corpus, corpus_of, starts
from mimetic_jax.data.textfiles import NotText, read_parts

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
_MANY = 10  # files, from which whole files are held out


def load_own(name: str, data_dir: str | None, vocabulary: int = 0) -> Corpus:
    """Load a text of one's own: "text_char" of characters, "text_word" of words, "text_bpe" of byte
    pairs, see `bpe.encoded`; or "text_tokens", files of token ids, see `token_files.load`.

    A folder with train.txt, valid.txt (validation, val, dev) and test.txt, or with such words at
    the start or the end of three .txt files' names, is read as it is split. Of another folder all
    files of text and of source code, also in folders below it, are joined in order of their names,
    each at the start of a line. Hidden files, empty ones and those that aren't UTF-8 are left out,
    symbolic links are followed, each text counts once.

    The validation and the test text have 5% of the characters each, at most 100,000. Of ten or
    more files whole ones are drawn for them, by a digest of their content, until there are so many:
    always the same, wherever they are and whichever others are added. Of a file with more than
    twice what is wanted the last lines are taken, and the rest is trained on. A text of fewer files
    is split at the nearest line ends, its last part is the test text.

    Args:
        vocabulary: the number of tokens: of "text_bpe", to learn, 0 for 8,192; of "text_tokens", as
            `token_files.load` takes it.
    """
    level = LEVELS[name]
    suffixes = token_files.SUFFIXES if level == "tokens" else _TEXTS
    if not data_dir:
        kinds = "token ids" if level == "tokens" else "text or source code"
        raise InputError(f"{name} needs your text. Pass --data-dir=FILE, or a folder of {kinds}.")
    if vocabulary and level in ("char", "word"):
        raise InputError(
            f"data.vocabulary {vocabulary} is of text_bpe and text_tokens: {name} counts its own"
        )
    path = check_exists(local_path(data_dir))
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
        unread = dict.fromkeys(others, "no token ids")
        return token_files.load(path, files, vocabulary, unread)
    unread, notes = dict.fromkeys(others, "no suffix of a text"), []
    if split := _splits(path, files):
        texts = ["".join(read_parts(file)) for file in split]
        named = [str(file.relative_to(path)) for file in files if file not in split]
        unread |= dict.fromkeys(named, "no split in its name")
        for one, other in itertools.combinations(range(len(texts)), 2):
            if texts[one] == texts[other]:
                notes.append(f"{split[other].name} is a copy of {split[one].name}")
    else:
        texts, notes = _divided(path, _contents(path, files, unread))
    if level == "bpe":
        corpus = bpe.encoded(name_of(path), texts, vocabulary)
    else:
        corpus = corpus_of(name_of(path), [iter([text]) for text in texts], level)
    said = "; ".join(filter(None, (describe_skipped(unread), *notes, corpus.notes)))
    return dataclasses.replace(corpus, notes=said)


def _files(path: Path, suffixes: Iterable[str]) -> tuple[list[Path], tuple[str, ...]]:
    """The texts, and the names of the other files of a folder, hidden ones excepted."""
    if path.is_file():
        return [path], ()
    below = sorted(folder / name for folder, names in walk(path) for name in names)
    visible = [file for file in below if file.is_file()]
    texts = [file for file in visible if file.suffix.lower() in suffixes]
    unread = [file for file in visible if file.suffix.lower() not in suffixes]
    others = tuple(str(file.relative_to(path)) for file in unread)
    if not texts:
        known = ", ".join(sorted(suffixes)[:4])
        said = others and f"; {describe_skipped(dict.fromkeys(others, 'other suffixes'))}"
        raise InputError(f"{path} has no file that is read here, such as {known}{said}")
    return texts, others


def _contents(path: Path, files: list[Path], unread: dict[str, str]) -> dict[Path, str]:
    """Each text of a folder by its file; files that hold none join the unread ones."""
    if path.is_file():
        return {path: "".join(read_parts(path))}
    texts: dict[Path, str] = {}
    for file in files:
        name = str(file.relative_to(path))
        try:
            text = "".join(read_parts(file)) if file.stat().st_size else ""
        except NotText as error:
            unread[f"line {error.line:,} of {name}"] = error.reason
            continue
        if text:
            texts[file] = text
        else:
            unread[name] = "empty"
    for first, *copies in group_copies(texts, texts.__getitem__):
        for file in copies:
            unread[f"{file.relative_to(path)} of {first.relative_to(path)}"] = "copies"
            del texts[file]
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


def _divided(path: Path, texts: Mapping[Path, str]) -> tuple[list[str], list[str]]:
    """Training, validation and test text, and which files the last two are of, if of whole ones."""
    if not texts:
        raise InputError(f"{path} has no text: its files are empty or aren't UTF-8")
    if len(texts) >= _MANY:
        return _drawn(path, texts)
    text = _joined(texts)
    first, second = (_line_end(text, start) for start in starts(len(text)))
    parts = [text[:first], text[first:second], text[second:]]
    if not all(parts):
        ends = text.count("\n")
        raise InputError(
            f"{path} can't be split at line ends: it has {len(text):,} characters and "
            f"{ends:,} line ends; break it into lines, or provide train.txt, valid.txt and test.txt"
        )
    return parts, []


def _drawn(folder: Path, texts: Mapping[Path, str]) -> tuple[list[str], list[str]]:
    size = sum(map(len, texts.values()))
    wanted = size - math.ceil(starts(size)[1])
    left = dict(sorted(texts.items(), key=lambda item: hashlib.sha256(item[1].encode()).digest()))
    held_out, notes = [], []
    for purpose in ("tested", "validated"):
        taken: dict[Path, str] = {}
        for file, text in [*left.items()]:
            if (missing := wanted - sum(map(len, taken.values()))) <= 0:
                break
            start = _line_end(text, len(text) - missing) if len(text) > 2 * wanted else 0
            if len(text) - start > 2 * wanted:  # a long file of few lines is for training
                continue
            if start < len(text):
                taken[file] = text[start:]
                del left[file]
            if start:
                left[file] = text[:start]
        held_out.append(_joined(taken))
        names = [f"{'the end of ' * (file in left)}{file.relative_to(folder)}" for file in taken]
        notes.append(f"{purpose} on {', '.join(sorted(names))}")
    test, valid = held_out
    return [_joined(left), valid, test], notes


def _joined(texts: Mapping[Path, str]) -> str:
    """Texts in order of their files, each at the start of a line: else two words would be one."""
    *first, last = (text for _, text in sorted(texts.items()))
    return "\n".join([*(text.removesuffix("\n") for text in first), last])


def _line_end(text: str, position: float) -> int:
    """The end of a line that is nearest to a position, the earlier of two."""
    before = text.rfind("\n", 0, int(position)) + 1
    after = text.find("\n", int(position)) + 1
    return after if after and after - position < position - before else before
