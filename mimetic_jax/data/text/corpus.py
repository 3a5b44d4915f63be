"""Texts by name: Penn Treebank, WikiText, Python's documentation, and texts of one's own."""

from __future__ import annotations

import dataclasses
from typing import Any

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.data.download import REMOTE, hint
from mimetic_jax.data.paths import check_unused, local_path
from mimetic_jax.data.text.text_files import LEVELS, load_own
from mimetic_jax.data.text.tokens import Corpus, TextInfo, corpus_of
from mimetic_jax.data.textfiles import read_parts

_PYTHON_DOCS = "python_docs"
_PTB: dict[str, Any] = {
    "source": "Mikolov's simple-examples.tgz, http://www.fit.vutbr.cz/~imikolov/rnnlm/",
    "folders": ("ptb", "simple-examples/data"),
    "files": tuple(file.name for file in REMOTE["ptb_word"]),
}
_WIKI_FILES = ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")
_WIKI_SOURCE = "https://huggingface.co/datasets/Salesforce/wikitext"

_KNOWN = {
    info.name: info
    for info in (
        TextInfo("ptb_word", "word", 10_000, 929_589, 73_760, 82_430, **_PTB),
        TextInfo("ptb_char_raw", "char", 49, 5_269_890, 413_262, 464_989, **_PTB),
        TextInfo("ptb_char", "char", 50, 5_017_482, 393_042, 442_423, **_PTB),
        TextInfo(
            "wikitext2",
            "word",
            33_278,
            2_088_628,
            217_646,
            245_569,
            files=_WIKI_FILES,
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
            folders=("wikitext-103",),
            source=f"wikitext-103-v1 of {_WIKI_SOURCE}",
        ),
    )
}


def describe(
    name: str,
    data_dir: str | None = None,
    corpus: Corpus | None = None,
    vocabulary: int = 0,
) -> TextInfo:
    """Return the size of a text: as loaded, or else as published, from its name alone.

    "python_docs", of which each version of Python has its own text, and a text of one's own are
    loaded for it.
    """
    if name in _KNOWN:
        info = _KNOWN[name]
    elif name == _PYTHON_DOCS or name in LEVELS:
        corpus = load_text(name, data_dir, vocabulary) if corpus is None else corpus
        source = "pydoc_data.topics of CPython" if name == _PYTHON_DOCS else str(data_dir)
        info = TextInfo(corpus.name, corpus.level, 0, 0, 0, 0, source, notes=corpus.notes)
    else:
        raise unknown("text", name, [*names(), *LEVELS])
    if corpus is None:
        return info
    return dataclasses.replace(
        info,
        vocabulary=len(corpus.vocabulary),
        num_train=len(corpus.train),
        num_valid=len(corpus.valid),
        num_test=len(corpus.test),
        valid_bytes=corpus.scored_bytes(corpus.valid),
        test_bytes=corpus.scored_bytes(corpus.test),
    )


def names() -> tuple[str, ...]:
    """Return the published texts that `load_text` knows."""
    return (*_KNOWN, _PYTHON_DOCS)


def load_text(name: str, data_dir: str | None, vocabulary: int = 0) -> Corpus:
    """Load a text, published or one's own: `text_files.load_own`, which also uses the numbers.

    Words are separated by whitespace, with "<eos>" after every line; those that the training text
    lacks are "<unk>". Characters ("ptb_char") are those of Mikolov's character files, made from
    the word files: each sentence is its words with a space between and a newline after.
    "ptb_char_raw" is what the program of Bai et al. reads: the word files as they are, with "<eos>"
    spelled out for each newline and the spaces around it, which makes 5% more characters, all of
    them easy; the published counts of characters don't include them. The files may be cut-down
    copies. "python_docs" is the language reference that CPython installs for `help()`, by
    characters: its topics in alphabetical order, joined by newlines; the first 90% of the
    characters are the training text, the next 5% validation, the last 5% test. Topics repeat
    parts of each other.

    Reference: An Empirical Evaluation of Generic Convolutional and Recurrent Networks for Sequence
    Modeling (Bai et al.), section 4, and its program's word_cnn and char_cnn.
    """
    if name in LEVELS:
        return load_own(name, data_dir, vocabulary)
    if vocabulary:
        raise InputError(
            f"data.vocabulary {vocabulary} is for texts of your own: {name} has its own"
        )
    if name == _PYTHON_DOCS:
        check_unused(name, data_dir, "text_char or text_word")
        return _python_docs()
    info = describe(name)
    if not data_dir:
        raise InputError(f"{name} needs the folder that holds it (data_dir): {_expected(info)}")
    root = local_path(data_dir)
    clean = {"ptb_char": _stripped, "ptb_char_raw": _spelled}.get(name, str)
    found = "" if root.is_dir() else " (no such folder)"
    for folder in (root, *(root / below for below in info.folders)):
        missing = [file for file in info.files if not (folder / file).is_file()]
        if not missing:
            parts = [read_parts(folder / file, clean) for file in info.files]
            return corpus_of(name, parts, info.level, published=True)
        if len(missing) < len(info.files):
            found = f" ({folder} lacks {', '.join(missing)})"
    command = hint(name, data_dir)
    raise InputError(
        f"no {name} in {data_dir}{found}: {_expected(info)}{command and f', or {command}'}"
    )


def _python_docs() -> Corpus:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise InputError(
            f"{_PYTHON_DOCS} is pydoc_data.topics, which this Python was installed without: use a "
            "complete CPython, or another text"
        ) from error
    text = "\n".join(topics[topic] for topic in sorted(topics))
    valid, test = len(text) * 90 // 100, len(text) * 95 // 100
    parts = text[:valid], text[valid:test], text[test:]
    return corpus_of(_PYTHON_DOCS, [iter([part]) for part in parts], "char")


def _expected(info: TextInfo) -> str:
    places = " or ".join(info.folders)
    return f"expected {', '.join(info.files)} there or in {places}, from {info.source}"


def _spelled(text: str) -> str:
    return text.replace("\n", "<eos>")


def _stripped(text: str) -> str:
    """Lines with one space between words and none around them."""
    return "".join(f"{' '.join(line.split())}\n" for line in text.splitlines())
