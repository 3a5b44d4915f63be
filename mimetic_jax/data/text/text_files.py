"""Texts of one's own: three files of a folder, or any text, split."""

from __future__ import annotations

import functools
from pathlib import Path

from mimetic_jax.data.home import existing, expanded, name_of
from mimetic_jax.data.text.tokens import Corpus, corpus_of, parts_of
from mimetic_jax.errors import InputError

LEVELS = {"text_char": "char", "text_word": "word"}
"""What a token is, by the name in configurations."""

_SPLITS = (("train",), ("valid", "validation", "val", "dev"), ("test",))
_SHARES = (0.9, 0.05)
"""Of the lines' characters, what becomes the training and the validation text."""


def load_own(name: str, data_dir: str | None) -> Corpus:
    """Load a text of one's own.

    A folder with train.txt, valid.txt (validation, val, dev) and test.txt is read as it is split.
    Of another folder all .txt files are joined in order of their names, each at the start of a
    line. That text, or that of a single file, is split at the line ends nearest to 90 % and 95 %
    of its characters: training, validation and test text.

    Args:
        name: "text_char" for every character of the text, "text_word" for words separated by
            whitespace with "<eos>" after every line.
        data_dir: the folder or file; "~" is the home folder. Its name becomes that of the corpus.

    Returns:
        The corpus; its vocabulary is in order of first appearance in train, valid, test.

    Raises:
        InputError: there is no such folder or file; it has no .txt file, or only one or two of
            train.txt, valid.txt and test.txt; or a file is empty, not UTF-8, too short to be
            split, or can't be read.
    """
    if not data_dir:
        raise InputError(
            f"{name} needs your text: --config.data.dir=FILE, or a folder of .txt files"
        )
    path = existing(expanded(data_dir))
    stamps = []
    for file in _files(path):
        try:
            found = file.stat()
        except OSError as error:
            raise InputError(f"can't read {file} ({error.strerror})") from error
        stamps.append((file, found.st_mtime_ns, found.st_size))
    return _read(name, path, tuple(stamps))


@functools.lru_cache(maxsize=1)  # a run asks for the sizes before it asks for the tokens
def _read(name: str, path: Path, stamps: tuple[tuple[Path, int, int], ...]) -> Corpus:
    files = [file for file, *_ in stamps]
    if split := _splits(path, files):
        texts = [parts_of(file) for file in split]
    else:
        texts = [iter([part]) for part in _divided(path, ["".join(parts_of(f)) for f in files])]
    return corpus_of(name_of(path), texts, LEVELS[name])


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = sorted(path.glob("*.txt"))
    if not files:
        raise InputError(f"{path} has no .txt file")
    return files


def _splits(folder: Path, files: list[Path]) -> list[Path]:
    """The training, validation and test file; none where no file has such a name."""
    by_name = {file.name.lower(): file for file in files} if folder.is_dir() else {}
    found = [
        next((by_name[f"{name}.txt"] for name in names if f"{name}.txt" in by_name), None)
        for names in _SPLITS
    ]
    there = [file for file in found if file]
    if len(there) in (1, 2):
        missing = (names[0] for names, file in zip(_SPLITS, found, strict=True) if not file)
        raise InputError(
            f"{folder} has {', '.join(file.name for file in there)} but lacks "
            f"{', '.join(f'{name}.txt' for name in missing)}: add it, or join the texts in one "
            "file, which is split automatically"
        )
    return there


def _divided(path: Path, files: list[str]) -> list[str]:
    # Without a line end, a file's last word and the next one's first would be one.
    text = "\n".join([*(file.removesuffix("\n") for file in files[:-1]), files[-1]])
    first, second = (_line_end(text, share * len(text)) for share in (_SHARES[0], sum(_SHARES)))
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
