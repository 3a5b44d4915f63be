"""A text as token ids: what is known of it, its tokens, and how files become tokens."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from mimetic_jax.base.errors import InputError

_UNKNOWN = "<unk>"
_CHUNK = 2**22  # bytes read at once: the strings of a chunk take about twenty times its size


@dataclasses.dataclass(frozen=True)
class TextInfo:
    """Size and origin of a text.

    Args:
        name: the name that `load_text` takes.
        level: what a token is, "word" or "char".
        vocabulary: number of different tokens.
        num_train: tokens of the training text, line ends included.
        num_valid: of the validation text.
        num_test: of the test text.
        source: the canonical release.
        files: its training, validation and test file, if it is read from these.
        folders: folders below `data_dir` that may hold the files.
        left_out: how many files of the folder aren't read; "" for none.
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
    left_out: str = dataclasses.field(default="", compare=False)

    def __str__(self) -> str:
        return (
            f"{self.name}, {self.num_train:,} train, {self.num_valid:,} validation and "
            f"{self.num_test:,} test tokens, {self.vocabulary:,} different ones"
            f"{self.left_out and f'; {self.left_out}'}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Training, validation and test text as token ids, with one vocabulary.

    >>> tokens = np.array([0, 1, 0], np.int32)
    >>> Corpus("ab", ("a", "b"), tokens, tokens, tokens).vocabulary[1]
    'b'

    Args:
        name: name of the text in configs and tables.
        vocabulary: token n is `vocabulary[n]`.
        train: int32 [N], each in [0, V).
        valid: int32.
        test: int32.

    Raises:
        InputError: a text is empty, or of another dtype or range.
    """

    name: str
    vocabulary: tuple[str, ...]
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    def __post_init__(self) -> None:
        for split in ("train", "valid", "test"):
            tokens = getattr(self, split)
            if tokens.dtype != np.int32 or tokens.ndim != 1 or not tokens.size:
                raise InputError(
                    f"{self.name} {split} is {tokens.dtype} of shape {tokens.shape}, "
                    "expected int32 of shape (tokens,), at least one"
                )
            if tokens.min() < 0 or tokens.max() >= len(self.vocabulary):
                raise InputError(
                    f"{self.name} {split} runs from {tokens.min()} to {tokens.max()}, "
                    f"expected 0 to {len(self.vocabulary) - 1}"
                )

    def fingerprint(self) -> str:
        """Sixteen hex digits that change when any token or symbol does."""
        digest = hashlib.sha256("\0".join(self.vocabulary).encode())
        for tokens in (self.train, self.valid, self.test):
            digest.update(repr(tokens.shape).encode())
            digest.update(np.ascontiguousarray(tokens).data)
        return digest.hexdigest()[:16]


def parts_of(path: Path, clean: Callable[[str], str] = lambda text: text) -> Iterator[str]:
    """Yield the text of a file, without a byte order mark, in parts that end at a line end.

    Line ends are those of any system: CR LF and CR become LF.

    Raises:
        InputError: it is empty, not UTF-8, or can't be read.
    """
    offset = 0
    try:
        with path.open("rb") as file:
            while part := file.read(_CHUNK) + file.readline():
                text = part.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
                yield clean(text if offset else text.removeprefix("\ufeff"))
                offset += len(part)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} isn't UTF-8: byte {offset + error.start} is {part[error.start]:#04x}"
        ) from error
    except OSError as error:
        raise InputError(f"can't read {path} ({error.strerror})") from error
    if not offset:
        raise InputError(f"{path} is empty")


def corpus_of(name: str, texts: Sequence[Iterator[str]], level: str) -> Corpus:
    """The training, validation and test text as tokens.

    The vocabulary of characters is all of them, in order of their first appearance. That of words
    is the training text's, and other words are "<unk>". Where the training text has no "<unk>" of
    its own, as the published ones have, words that occur once in it become "<unk>": else it would
    never be trained.

    Args:
        name: of the corpus.
        texts: the three texts, in parts that end at a line end.
        level: "word" or "char".
    """
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new symbol's id is the number of symbols so far
    if level == "char":
        train, valid, test = (_encoded(text, list, numbers.__getitem__) for text in texts)
        return Corpus(name, tuple(numbers), train, valid, test)
    train = _encoded(texts[0], _words, numbers.__getitem__)
    known, train = _known(numbers, train)
    unknown = known[_UNKNOWN]
    valid, test = (
        _encoded(text, _words, lambda word: known.get(word, unknown)) for text in texts[1:]
    )
    return Corpus(name, tuple(known), train, valid, test)


def _known(numbers: dict[str, int], train: np.ndarray) -> tuple[dict[str, int], np.ndarray]:
    """The vocabulary of words with "<unk>", and the training text in it."""
    if _UNKNOWN in numbers:
        return dict(numbers), train
    often = np.bincount(train, minlength=len(numbers)) > 1
    words = [word for word, kept in zip(numbers, often, strict=True) if kept]
    places = np.where(often, np.cumsum(often) - 1, len(words)).astype(np.int32)
    return {word: n for n, word in enumerate((*words, _UNKNOWN))}, places[train]


def _encoded(
    text: Iterator[str], split: Callable[[str], list[str]], number: Callable[[str], int]
) -> np.ndarray:
    parts = map(split, text)
    return np.concatenate(
        [np.fromiter(map(number, tokens), np.int32, len(tokens)) for tokens in parts]
    )


def _words(text: str) -> list[str]:
    if not text.endswith("\n"):
        text += "\n"
    return text.replace("\n", " <eos> ").split()
