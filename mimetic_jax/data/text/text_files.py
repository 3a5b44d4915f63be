"""Texts of one's own: three files of a folder, or any text, split."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.home import (
    SPLITS,
    existing,
    expanded,
    name_of,
    parts_of,
    split_in_name,
    unread,
    walk,
)
from mimetic_jax.data.text.tokens import Corpus, corpus_of

LEVELS = {"text_char": "char", "text_word": "word"}
"""What a token is, by the name in configurations."""

_FILES = {"train": "train.txt", "validation": "valid.txt", "test": "test.txt"}
_SHARES = (0.9, 0.95)  # of the characters, where the validation and the test text begin
_MOST_TESTED = 100_000  # characters of each: a test of more would take longer than the training


def load_own(name: str, data_dir: str | None) -> Corpus:
    """Load a text of one's own: "text_char" of characters, or "text_word" of words.

    A folder with train.txt, valid.txt (validation, val, dev) and test.txt, or with such words at
    the start or the end of three files' names, is read as it is split. Of another folder all .txt
    files, also of folders below it, are joined in order of their names, each at the start of a
    line; hidden files are left out, symbolic links are followed, each real folder once. That text,
    or that of a single file, is split at the nearest line ends in training, validation and test
    text. The latter two have 5 % of the characters each, at most 100,000.
    """
    if not data_dir:
        raise InputError(
            f"{name} needs your text: --config.data.dir=FILE, or a folder of .txt files"
        )
    path = existing(expanded(data_dir))
    files, others = _files(path)
    stamps = tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    return _read(name, path, stamps, others)


@functools.lru_cache(maxsize=1)  # a run asks for the sizes before it asks for the tokens
def _read(
    name: str, path: Path, stamps: tuple[tuple[Path, int, int], ...], others: tuple[str, ...]
) -> Corpus:
    files = [file for file, *_ in stamps]
    if split := _splits(path, files):
        texts = [parts_of(file) for file in split]
        others += tuple(file.name for file in files if file not in split)
    else:
        texts = [iter([part]) for part in _divided(path, ["".join(parts_of(f)) for f in files])]
    corpus = corpus_of(name_of(path), texts, LEVELS[name])
    return dataclasses.replace(corpus, left_out=unread(others))


def _files(path: Path) -> tuple[list[Path], tuple[str, ...]]:
    """The texts, and the names of the other files of a folder, hidden ones excepted."""
    if path.is_file():
        return [path], ()
    below = sorted(folder / name for folder, names in walk(path) for name in names)
    visible = [file for file in below if file.is_file()]
    texts = [file for file in visible if file.suffix.lower() == ".txt"]
    if not texts:
        raise InputError(f"{path} has no .txt file")
    return texts, tuple(file.name for file in visible if file.suffix.lower() != ".txt")


def _splits(folder: Path, files: list[Path]) -> list[Path]:
    """The training, validation and test file; none if no names tell splits."""
    if not folder.is_dir():
        return []
    told = {file: split for file in files if (split := _split(file.relative_to(folder)))}
    if not told:
        told = {file: split for file in files if (split := split_in_name(file.stem))}
        if "train" not in told.values() or len({*told.values()}) == 1:
            return []  # words of a title, such as "A test.txt"
    found = {split: [file for file in told if told[file] == split] for split in _FILES}
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


def _split(file: Path) -> str:
    """The split that a file is, or that a folder above it is; "" for none."""
    names = (file.stem, *reversed(file.parts[:-1]))
    return next((SPLITS[name.lower()] for name in names if name.lower() in SPLITS), "")


def _divided(path: Path, files: list[str]) -> list[str]:
    # Without a line end, a file's last word and the next one's first would be one.
    text = "\n".join([*(file.removesuffix("\n") for file in files[:-1]), files[-1]])
    first, second = (
        _line_end(text, max(share * len(text), len(text) - parts * _MOST_TESTED))
        for share, parts in zip(_SHARES, (2, 1), strict=True)
    )
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
