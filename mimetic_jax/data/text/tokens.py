"""A text as token ids: what is known of it, its tokens, and how files become tokens."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from mimetic_jax.base.errors import InputError

_UNKNOWN, _END = "<unk>", "<eos>"
_LIKE_OURS = re.compile(rf"(?<!\S)(\\*(?:{_UNKNOWN}|{_END}))(?!\S)")
"""Words of a text that are written as ours are, or would be once they are escaped."""

_HASHED = 2**22  # tokens at once
_SHARES = (0.9, 0.95)  # where the validation and the test text begin
_MOST_TESTED = 100_000  # characters or tokens: a test of more would take longer than the training


@dataclasses.dataclass(frozen=True)
class TextInfo:
    """Size and origin of a text; numbers of tokens are with line ends.

    Args:
        level: what a token is: "word", "char", "bpe", or "tokens" of a file.
        vocabulary: number of different tokens.
        source: the canonical release.
        files: its training, validation and test file, if it is read from these.
        folders: folders below `data_dir` that may hold the files.
        notes: what isn't read, and what else a reader of results should know; "" for none.
        valid_bytes, test_bytes: of the tokens after the first, which are scored; 0 if not known.
    """

    name: str
    level: str
    vocabulary: int
    num_train: int
    num_valid: int
    num_test: int
    source: str
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    notes: str = dataclasses.field(default="", compare=False)
    valid_bytes: int = 0
    test_bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{self.name}, {self.num_train:,} train, {self.num_valid:,} validation and "
            f"{self.num_test:,} test tokens, {self.vocabulary:,} different ones"
            f"{self.notes and f'; {self.notes}'}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Training, validation and test text as token ids, integers [N], with one vocabulary.

    Those of a file are a memory map.

    Attributes:
        level: what a token is, as in `TextInfo`; of level "bpe", a symbol of the vocabulary has a
            character for each byte.
        notes: what isn't read, and what else a reader of results should know; "" for none.
    """

    name: str
    vocabulary: tuple[str, ...]
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    level: str
    notes: str = dataclasses.field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for split in ("train", "valid", "test"):
            if not getattr(self, split).size:  # of nothing but a byte order mark
                raise InputError(f"the {split} text of {self.name} is empty")

    def part(self, subset: float) -> Self:
        """Return a text that trains on the first share of the training tokens."""
        return dataclasses.replace(self, train=self.train[: round(subset * len(self.train))])

    def fingerprint(self) -> str:
        """Sixteen hex digits that change when any token or symbol does, of any kind of integers."""
        digest = hashlib.sha256("\0".join(self.vocabulary).encode())
        for tokens in (self.train, self.valid, self.test):
            digest.update(repr(tokens.shape).encode())
            add_tokens(digest, tokens)
        return digest.hexdigest()[:16]

    def scored_bytes(self, tokens: np.ndarray) -> int:
        """Return the bytes of all tokens but the first, which nothing precedes; 0 if not known."""
        if self.level != "bpe":
            return 0
        sizes = np.array([len(symbol) for symbol in self.vocabulary])
        return int(sizes[tokens[1:]].sum())


def starts(size: int) -> tuple[float, float]:
    """Return where the validation and the test part of a text begin: it has none of its own.

    >>> starts(1000), starts(10_000_000)
    ((900.0, 950.0), (9800000, 9900000))
    """
    first, second = _SHARES
    return (
        max(first * size, size - 2 * _MOST_TESTED),
        max(second * size, size - _MOST_TESTED),
    )


def add_tokens(digest: Any, tokens: np.ndarray) -> None:
    """Add tokens to a digest of hashlib, the same for any kind of integers, in bounded memory."""
    for start in range(0, len(tokens), _HASHED):
        digest.update(tokens[start : start + _HASHED].astype(np.int32).data)


def corpus_of(
    name: str, texts: Sequence[Iterator[str]], level: str, *, published: bool = False
) -> Corpus:
    """Return the training, validation and test text, in parts that end at a line end, as tokens.

    The vocabulary of characters is all of them, in order of their first appearance. That of words
    is the training text's, other words are "<unk>", and a line ends with "<eos>". Words that occur
    once in the training text become "<unk>", which would never be trained else, unless its author
    has written it: a published text has "<unk>" of its own. In a text of one's own "<unk>" and
    "<eos>" are words like others, listed with a backslash.
    """
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new symbol's id is the number of symbols so far
    if level == "char":
        train, valid, test = (_encode(text, list, numbers.__getitem__) for text in texts)
        return Corpus(name, tuple(numbers), train, valid, test, level)
    words = _words if published else _own_words
    train = _encode(texts[0], words, numbers.__getitem__)
    known, train = _known(numbers, train)
    unknown = known[_UNKNOWN]
    valid, test = (
        _encode(text, words, lambda word: known.get(word, unknown)) for text in texts[1:]
    )
    return Corpus(name, tuple(known), train, valid, test, level)


def _known(numbers: dict[str, int], train: np.ndarray) -> tuple[dict[str, int], np.ndarray]:
    """The vocabulary of words with "<unk>", and the training text in it."""
    if _UNKNOWN in numbers:
        return dict(numbers), train
    often = np.bincount(train, minlength=len(numbers)) > 1
    words = [word for word, kept in zip(numbers, often, strict=True) if kept]
    places = np.where(often, np.cumsum(often) - 1, len(words)).astype(np.int32)
    return {word: n for n, word in enumerate((*words, _UNKNOWN))}, places[train]


def _encode(
    text: Iterator[str], split: Callable[[str], list[str]], number: Callable[[str], int]
) -> np.ndarray:
    parts = map(split, text)
    return np.concatenate(
        [np.fromiter(map(number, tokens), np.int32, len(tokens)) for tokens in parts]
    )


def _words(text: str) -> list[str]:
    if not text.endswith("\n"):
        text += "\n"
    return text.replace("\n", f" {_END} ").split()


def _own_words(text: str) -> list[str]:
    if _UNKNOWN in text or _END in text:
        text = _LIKE_OURS.sub(r"\\\1", text)
    return _words(text)
