"""The n-gram baseline against probabilities by hand."""

import math

import numpy as np

from benchmarks.ngram import perplexity


def test_a_bigram_model_by_hand():
    # Bigrams: 01 twice, 10, 12 and 20 once, so d = 3 / (3 + 2). In front of 0 stand two words, in
    # front of 1 and of 2 one: d = 2 / (2 + 2), and of these 4 each of the latter has p below.
    train, test = np.array([0, 1, 0, 1, 2, 0]), np.array([0, 1, 2])
    p = (1 - 0.5) / 4 + 0.5 * 3 / 4 / 3
    after_0 = (2 - 0.6 + 0.6 * 1 * p) / 2
    after_1 = (1 - 0.6 + 0.6 * 2 * p) / 2
    expected = math.exp(-(math.log(after_0) + math.log(after_1)) / 2)
    assert np.isclose(perplexity(train, test, vocab=3, order=2), expected)
