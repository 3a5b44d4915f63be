"""Time what embeddings from counts cost: counting a text, and decomposing its counts.

    python -m benchmarks.counts [TOKENS [VOCAB [DIM]]]

By default 100 million tokens of a vocabulary of 50,000, for an embedding of 768 columns. The text
is drawn: frequencies as 1/rank, and three of four tokens are one of fifty that follow the token
before, so that pairs repeat about as often as in WikiText-2. One run; seconds of the process's CPU
time stand beside those of the clock, for a machine that does other things, too. The last line is
the largest memory of the whole process in GiB, the text's included.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import jax
import numpy as np

from mimetic_jax.weights import cooccurrence, from_counts
from mimetic_jax.weights.counts import CONTEXTS

DOCUMENT, FOLLOWERS, FOLLOWS = 1000, 50, 0.75
T = TypeVar("T")


def drawn(size: int, vocab: int) -> np.ndarray:
    """A text [size] of documents that are drawn side by side, a token of each at a time."""
    random = np.random.default_rng(0)

    def ranks(shape: tuple[int, ...], most: int) -> np.ndarray:
        mass = np.cumsum(1 / np.arange(1, most + 1))
        return np.searchsorted(mass, random.random(shape) * mass[-1])

    followers = ranks((vocab, FOLLOWERS), vocab)
    documents = -(-size // DOCUMENT)
    text = np.empty((documents, DOCUMENT), np.uint16 if vocab <= 2**16 else np.int32)
    before = np.zeros(documents, int)
    for at in range(DOCUMENT):
        after = followers[before, ranks((documents,), FOLLOWERS)]
        before = np.where(random.random(documents) < FOLLOWS, after, ranks((documents,), vocab))
        text[:, at] = before
    return text.ravel()[:size]


def timed(words: str, work: Callable[[], T]) -> T:
    """What a function returns; its seconds are printed."""
    clock, cpu = time.perf_counter(), time.process_time()
    result = work()
    wall, busy = time.perf_counter() - clock, time.process_time() - cpu
    print(f"{words}: {wall:.1f} s, {busy:.1f} s of CPU", flush=True)
    return result


def main() -> None:
    """Count, decompose, and print the times."""
    given = [int(float(argument)) for argument in sys.argv[1:]]
    size, vocab, dim = (*given, *(100_000_000, 50_000, 768)[len(given) :])
    text = drawn(size, vocab)
    counts = timed(f"count {size:,} tokens", lambda: cooccurrence(text, vocab, contexts=CONTEXTS))
    print(f"{counts.nnz:,} pairs of {vocab:,} tokens, those with {CONTEXTS:,} frequent ones")
    timed(f"embedding of {dim} columns", lambda: from_counts(jax.random.key(0), counts, dim))
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
