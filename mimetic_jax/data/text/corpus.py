"""Published texts as token ids: Penn Treebank, WikiText, Python's documentation."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from mimetic_jax.data.home import expanded
from mimetic_jax.data.remote import hint
from mimetic_jax.errors import InputError, unknown

_LEVELS = ("word", "char")
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
        files: its training, validation and test file.
        md5: their checksums in the canonical release; "" where unknown.
        folders: folders below `data_dir` that may hold the files.
        source: the canonical release.
    """

    name: str
    level: str
    vocabulary: int
    num_train: int
    num_valid: int
    num_test: int
    files: tuple[str, str, str]
    md5: tuple[str, str, str]
    folders: tuple[str, ...]
    source: str

    def __str__(self) -> str:
        return (
            f"{self.name}, {self.num_train:,} train, {self.num_valid:,} validation and "
            f"{self.num_test:,} test tokens, {self.vocabulary:,} different ones"
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


_PTB = ("ptb", "simple-examples/data")
_PTB_SOURCE = "Mikolov's simple-examples.tgz, http://www.fit.vutbr.cz/~imikolov/rnnlm/"
_PTB_FILES = ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt")
_PTB_MD5 = (
    "f26c4b92c5fdc7b3f8c7cdcb991d8420",
    "aa0affc06ff7c36e977d7cd49e3839bf",
    "8b80168b89c18661a38ef683c0dc3721",
)
_PYTHON_DOCS = "python_docs"
OWN = ("text_char", "text_word")
"""Names of a text of one's own by characters and by words, see own.py."""
_WIKI_FILES = ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")
_WIKI_SOURCE = "https://huggingface.co/datasets/Salesforce/wikitext"

_KNOWN = {
    info.name: info
    for info in (
        TextInfo(
            "ptb_word",
            "word",
            10_000,
            929_589,
            73_760,
            82_430,
            files=_PTB_FILES,
            md5=_PTB_MD5,
            folders=_PTB,
            source=_PTB_SOURCE,
        ),
        TextInfo(
            "ptb_char_raw",
            "char",
            49,
            5_269_890,
            413_262,
            464_989,
            files=_PTB_FILES,
            md5=_PTB_MD5,
            folders=_PTB,
            source=_PTB_SOURCE,
        ),
        TextInfo(
            "ptb_char",
            "char",
            50,
            5_017_482,
            393_042,
            442_423,
            files=("ptb.char.train.txt", "ptb.char.valid.txt", "ptb.char.test.txt"),
            md5=(
                "874909f99060142f6b88cc74c34baaa2",
                "9e0fe5bec2a8bf43fd686dc23d5ab8bb",
                "1f9a2d1afe00f76e8bfbe09a65439681",
            ),
            folders=_PTB,
            source=_PTB_SOURCE,
        ),
        TextInfo(
            "wikitext2",
            "word",
            33_278,
            2_088_628,
            217_646,
            245_569,
            files=_WIKI_FILES,
            md5=(
                "34a77ebe59551b3a3b3d8c0a2797c976",
                "d756d22ab2310e7e60c094bea5c5a8eb",
                "781c9418ab9414bd09e4aad825aae752",
            ),
            folders=("wikitext-2",),
            source=f"wikitext-2-v1 of {_WIKI_SOURCE}",
        ),
        TextInfo(
            "wikitext103",
            "word",
            267_735,
            103_227_021,
            217_646,
            245_569,
            files=_WIKI_FILES,
            md5=("", "b465742f79b17b85bad5699479b13301", "f202e4c8148839782adc13e7d1ca58e0"),
            folders=("wikitext-103",),
            source=f"wikitext-103-v1 of {_WIKI_SOURCE}",
        ),
    )
}


def describe(name: str) -> TextInfo:
    """The size of a text, from its name alone: no file of it is opened.

    Only "python_docs" is counted, in the installed Python: each version has its own text.

    >>> describe("ptb_word").vocabulary
    10000

    Raises:
        InputError: the name is unknown, or this Python has no documentation.
    """
    if name == _PYTHON_DOCS:
        train, valid, test = _python_docs()
        return TextInfo(
            name,
            "char",
            len({*train, *valid, *test}),
            len(train),
            len(valid),
            len(test),
            files=("", "", ""),
            md5=("", "", ""),
            folders=(),
            source="pydoc_data.topics of CPython",
        )
    if name not in _KNOWN:
        raise unknown("text", name, [*names(), *OWN])
    return _KNOWN[name]


def names() -> tuple[str, ...]:
    """The published texts that `load_text` knows.

    >>> "ptb_char" in names()
    True
    """
    return (*_KNOWN, _PYTHON_DOCS)


def load_text(name: str, data_dir: str | None) -> Corpus:
    """Load a published text.

    Words are separated by whitespace, with "<eos>" after every line. Characters ("ptb_char") are
    those of Mikolov's character files, where each sentence is its words with a space between and a
    newline after. They are read from ptb.char.*.txt, or made from ptb.*.txt with the same result.
    "ptb_char_raw" is what the program of Bai et al. reads: the word files as they are, with "<eos>"
    spelled out for each newline and the spaces around it, which makes 5 % more characters, all of
    them easy; the published counts of characters don't include them. The files may be cut-down
    copies: checksums are shown, not checked.
    "python_docs" is the language reference that CPython installs for `help()`, by characters: its
    topics in alphabetical order, joined by newlines; the first 90 % of the characters are the
    training text, the next 5 % validation, the last 5 % test. Topics repeat parts of each other.

    Args:
        name: "ptb_word", "ptb_char", "ptb_char_raw", "wikitext2", "wikitext103" or "python_docs".
        data_dir: the folder with the files, or with a folder ptb, wikitext-2 or wikitext-103 that
            holds them; "~" is the home folder. "python_docs" needs none.

    Returns:
        The corpus; its vocabulary is in order of first appearance in train, valid, test.

    Raises:
        InputError: the name is unknown, or a file is missing, empty or not UTF-8.

    Reference: An Empirical Evaluation of Generic Convolutional and Recurrent Networks for Sequence
    Modeling (Bai et al.), section 4, and its program's word_cnn and char_cnn.
    """
    info = describe(name)
    if name == _PYTHON_DOCS:
        return corpus_of(name, [iter([part]) for part in _python_docs()], info.level)
    if not data_dir:
        raise InputError(f"{name} needs the folder that holds it (data_dir): {_expected(info)}")
    root = expanded(data_dir)
    forms = [(info.files, {"ptb_char": _spaced, "ptb_char_raw": _spelled}.get(name, _raw))]
    if name == "ptb_char":
        forms.append((describe("ptb_word").files, _stripped))
    found = "" if root.is_dir() else " (no such folder)"
    for files, clean in forms:
        for folder in (root, *(root / below for below in info.folders)):
            missing = [file for file in files if not (folder / file).is_file()]
            if not missing:
                texts = [parts_of(folder / file, clean) for file in files]
                return corpus_of(name, texts, info.level)
            if len(missing) < len(files):
                found = f" ({folder} lacks {', '.join(missing)})"
    command = hint(name, data_dir)
    raise InputError(
        f"no {name} in {data_dir}{found}: {_expected(info)}{command and f', or {command}'}"
    )


def encode(text: str, vocabulary: Sequence[str], level: str) -> np.ndarray:
    r"""Encode another text with the vocabulary of a corpus.

    >>> encode("to be\nto", ("to", "<eos>", "be"), "word").tolist()
    [0, 2, 1, 0, 1]

    Args:
        text: any text.
        vocabulary: token n is `vocabulary[n]`.
        level: "word" for words separated by whitespace with "<eos>" after every
            line, "char" for every character.

    Returns:
        int32 [N].

    Raises:
        InputError: a token isn't in the vocabulary, or the level is unknown.
    """
    if level not in _LEVELS:
        raise unknown("level", level, _LEVELS)
    numbers = {symbol: number for number, symbol in enumerate(vocabulary)}
    tokens = _words(text) if level == "word" else list(text)
    for position, token in enumerate(tokens):
        if token not in numbers:
            raise InputError(
                f"{level} {token!r} (token {position}) isn't among the {len(numbers)} tokens of "
                "the vocabulary"
            )
    return np.array([numbers[token] for token in tokens], np.int32)


def _python_docs() -> tuple[str, str, str]:
    """Training, validation and test text."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise InputError(
            f"{_PYTHON_DOCS} is pydoc_data.topics, which this Python was installed without: use a "
            "complete CPython, or another text"
        ) from error
    text = "\n".join(topics[topic] for topic in sorted(topics))
    valid, test = len(text) * 90 // 100, len(text) * 95 // 100
    return text[:valid], text[valid:test], text[test:]


def _expected(info: TextInfo) -> str:
    files = ", ".join(
        f"{file} (md5 {md5})" if md5 else file
        for file, md5 in zip(info.files, info.md5, strict=True)
    )
    either = f", or {', '.join(describe('ptb_word').files)}," if info.name == "ptb_char" else ""
    return f"expected {files}{either} there or in {' or '.join(info.folders)}, from {info.source}"


def parts_of(path: Path, clean: Callable[[str], str] = lambda text: text) -> Iterator[str]:
    """Yield the text of a file, without a byte order mark, in parts that end at a line end.

    Raises:
        InputError: it is empty or not UTF-8.
    """
    offset = 0
    with path.open("rb") as file:
        while part := file.read(_CHUNK) + file.readline():
            try:
                text = part.decode()
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path} isn't UTF-8: byte {offset + error.start} is {part[error.start]:#04x}"
                ) from error
            yield clean(text if offset else text.removeprefix("\ufeff"))
            offset += len(part)
    if not offset:
        raise InputError(f"{path} is empty")


def _raw(text: str) -> str:
    return text


def _spelled(text: str) -> str:
    return text.replace("\n", "<eos>")


def _spaced(text: str) -> str:
    """Undo Mikolov's format, where a space follows each character and "_" is a space."""
    return text.replace(" ", "").replace("_", " ")


def _stripped(text: str) -> str:
    """Lines with one space between words and none around them."""
    return "".join(f"{' '.join(line.split())}\n" for line in text.splitlines())


def _words(text: str) -> list[str]:
    if not text.endswith("\n"):
        text += "\n"
    return text.replace("\n", " <eos> ").split()


def corpus_of(name: str, texts: Sequence[Iterator[str]], level: str) -> Corpus:
    """The training, validation and test text as tokens, in parts that end at a line end."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new symbol's id is the number of symbols so far
    split = _words if level == "word" else _raw

    def encoded(part: str) -> np.ndarray:
        tokens = split(part)
        return np.fromiter(map(numbers.__getitem__, tokens), np.int32, len(tokens))

    train, valid, test = (np.concatenate([encoded(part) for part in text]) for text in texts)
    return Corpus(name, tuple(numbers), train, valid, test)
