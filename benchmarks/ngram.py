"""What counts alone predict: the perplexity of an interpolated Kneser-Ney model of a text.

    python -m benchmarks.ngram DATA_DIR [TEXT [ORDER]]

By default 5-grams of the Penn Treebank by words, on the tokens that language models here are
trained and tested on. It is the baseline of whoever reads a perplexity of a short training.

p_n(w | h) = (max(c(h w) − d_n, 0) + d_n N(h ·) p_{n-1}(w | h')) / c(h), h' the history without its
first word, N(h ·) the number of different words after h, d_n = n₁ / (n₁ + 2 n₂) of the n-grams
that are counted once and twice. Below the highest order c counts different words in front instead
of occurrences; below the lowest is the uniform distribution. Histories go on across lines.

Reference: Improved Backing-off for M-gram Language Modeling (Kneser and Ney 1995), interpolated as
in An Empirical Study of Smoothing Techniques for Language Modeling (Chen and Goodman 1999).
"""

from __future__ import annotations

import math
import sys
from collections import Counter

import numpy as np

from mimetic_jax.data.text.corpus import load_text


def perplexity(train: np.ndarray, test: np.ndarray, vocab: int, order: int) -> float:
    """Of all tokens of `test` after the first."""
    text, tested = train.tolist(), test.tolist()
    counts = Counter(zip(*(text[at:] for at in range(order)), strict=False))
    levels = []
    for _ in range(order):
        once, twice = (sum(count == times for count in counts.values()) for times in (1, 2))
        totals, different = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
        for gram, count in counts.items():
            totals[gram[:-1]] += count
            different[gram[:-1]] += 1
        levels.append((counts, totals, different, once / (once + 2 * twice)))
        counts = Counter(gram[1:] for gram in counts)
    log_sum = 0.0
    for at in range(1, len(tested)):
        gram = tuple(tested[max(at - order + 1, 0) : at + 1])
        p = 1 / vocab
        for counts, totals, different, discount in reversed(levels[order - len(gram) :]):
            suffix = gram[len(gram) - len(next(iter(counts))) :]
            if total := totals[suffix[:-1]]:
                rest = discount * different[suffix[:-1]] * p
                p = (max(counts[suffix] - discount, 0) + rest) / total
        log_sum -= math.log(p)
    return math.exp(log_sum / (len(tested) - 1))


def main() -> None:
    """Print the perplexities of the validation and of the test text."""
    data_dir, name, order = (*sys.argv[1:], *("", "ptb_word", "5")[len(sys.argv) - 1 :])
    corpus = load_text(name, data_dir)
    for split, tokens in (("validation", corpus.valid), ("test", corpus.test)):
        score = perplexity(corpus.train, tokens, len(corpus.vocabulary), int(order))
        print(f"{name}, {split} text: perplexity {score:.1f} by interpolated {order}-grams")


if __name__ == "__main__":
    main()
