"""Byte-level BPE, learned on the training text alone, and kept with the tokens that it gives."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.extras import need
from mimetic_jax.data.cache import cache_folder, cached_arrays, write_cached
from mimetic_jax.data.text.tokens import Corpus

VOCABULARY = 8192
"""Tokens to learn unless another number is given."""

LONGEST = 500
"""Characters of a word, beyond which it is cut: learning takes the square of its length."""

_BYTES = 256  # each is a token, so that no text has unknown ones
_FORM = "1"  # of what is kept: another one for other rules of splitting or learning
_LONG = rf"\S{{{LONGEST}}}|\s{{{LONGEST}}}"
_SPLITS = ("train", "valid", "test")
_PIECE = 20_000  # characters: threads of the library share the pieces of a text
_SAID = 10**7  # characters of a text that takes long
_CUT = re.compile(r"\S\n(?=\S)")
"""A line end between characters, where GPT-2's rules always end a word."""


def encoded(name: str, texts: Sequence[str], vocabulary: int = 0) -> Corpus:
    """Training, validation and test text as byte pairs of the training text.

    The tokenizer is Hugging Face's: words by GPT-2's rules, the 256 bytes as first tokens, then the
    most frequent pairs that occur at least twice, until there are `vocabulary` tokens, 0 for 8,192.
    Letters, or white space, without an end are cut after every 500. The tokenizer is kept with the
    tokens, by the digest of the texts, in the cache folder; what is damaged there is made again.
    While it learns, a terminal shows the progress.

    Raises:
        InputError: the vocabulary has less than 256 tokens, or `tokenizers` isn't installed.

    Reference: Neural Machine Translation of Rare Words with Subword Units (Sennrich et al. 2016);
    over bytes, Language Models are Unsupervised Multitask Learners (Radford et al. 2019).
    """
    vocabulary = vocabulary or VOCABULARY
    if vocabulary < _BYTES:
        raise InputError(f"vocabulary {vocabulary} is less than the {_BYTES} bytes that BPE has")
    long = any(re.search(_LONG, text) for text in texts)
    place = cache_folder() / f"bpe_{vocabulary}_{_digest(texts, _LONG if long else '')}"
    arrays, tokenizer = place.with_suffix(".npz"), place.with_suffix(".json")
    names = (*_SPLITS, "tokenizer")
    found, note = cached_arrays(arrays, names, lambda: _learned(texts, vocabulary, long))
    notes = [note] if note else []
    stored = found["tokenizer"].tobytes()
    symbols = json.loads(stored)["model"]["vocab"]
    if len(symbols) < vocabulary:
        notes.append(f"{len(symbols):,} tokens of {vocabulary:,}: no other pair occurs twice")
    if _content(tokenizer) == stored or write_cached(tokenizer, lambda file: file.write(stored)):
        notes.append(f"tokenizer {tokenizer}")
    ordered = tuple(sorted(symbols, key=symbols.__getitem__))
    train, valid, test = (found[split] for split in _SPLITS)
    return Corpus(name, ordered, train, valid, test, "bpe", notes="; ".join(notes))


def pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that together have the tokens of the whole."""
    start = 0
    while start < len(text):
        cut = _CUT.search(text, start + _PIECE)
        end = cut.end() if cut else len(text)
        yield text[start:end]
        start = end


def _learned(texts: Sequence[str], vocabulary: int, long: bool) -> dict[str, Any]:
    """The tokens of each text, and the tokenizer as the bytes of its JSON."""
    need("text_bpe", "train")
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    words: Any = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if long:
        cut = pre_tokenizers.Split(Regex(_LONG), "isolated")
        words = pre_tokenizers.Sequence([cut, words])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=sys.stdout.isatty(),  # it prints empty lines in a pipe
    )
    parts = list(pieces(texts[0]))
    if len(texts[0]) > _SAID:
        said = f"learning {vocabulary:,} byte pairs of {len(texts[0]):,} characters"
        print(said, file=sys.stderr, flush=True)
    tokenizer.train_from_iterator(parts, trainer, length=len(parts))
    kind = np.uint16 if vocabulary <= 2**16 else np.int32
    found: dict[str, Any] = {
        split: _ids(tokenizer, text).astype(kind)
        for split, text in zip(_SPLITS, texts, strict=True)
    }
    found["tokenizer"] = np.frombuffer(tokenizer.to_str(pretty=True).encode(), np.uint8)
    return found


def _ids(tokenizer: Any, text: str) -> np.ndarray:
    from tqdm import tqdm

    waiting, parts = list(pieces(text)), [np.empty(0, np.int32)]
    starts = range(0, len(waiting), 64)  # an encoding is many times as large as its ids
    for start in tqdm(starts, "Tokenize the text", leave=False, disable=None):
        batch = tokenizer.encode_batch_fast(waiting[start : start + 64])
        parts += [np.array(encoding.ids, np.int32) for encoding in batch]
    return np.concatenate(parts)


def _digest(texts: Sequence[str], rule: str) -> str:
    digest = hashlib.sha256(f"{_FORM}{rule}".encode())
    for text in texts:
        content = text.encode()
        digest.update(f"{len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
