"""The counts of tokens near each other in a text, kept beside the tokenizers of texts."""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from mimetic_jax.data.cache import cache_folder, cached_arrays
from mimetic_jax.data.text.tokens import add_tokens
from mimetic_jax.weights.counts import half_counts, symmetric

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_FORM = "1"  # of what is kept: another one for another law
_PARTS = ("data", "indices", "indptr")


def cached_counts(tokens: np.ndarray, vocab: int, window: int, contexts: int) -> csr_array:
    """Count as `weights.cooccurrence` does, and cache the counts: the next call counts nothing.

    The name of the file has the digest of the text and of all arguments. What it does, and a
    damaged file, whose text is counted anew, are reported to stderr.
    """
    digest = hashlib.sha256(f"{_FORM} {vocab} {window} {contexts} {len(tokens)}".encode())
    add_tokens(digest, tokens)

    def counted() -> dict[str, np.ndarray]:
        _say(f"counting {len(tokens):,} tokens in windows of {window}")
        half = half_counts(tokens, vocab, window, contexts)
        return {part: getattr(half, part) for part in _PARTS}

    path = cache_folder() / f"counts_{digest.hexdigest()[:32]}.npz"
    arrays, note = cached_arrays(path, _PARTS, counted)
    if note:
        _say(note)
    half = tuple(arrays[part] for part in _PARTS)
    return symmetric(scipy.sparse.csr_array(half, shape=(vocab, vocab)))


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
