"""Words of brackets: their laws, checked by a stack in Python."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.data.recall.dyck import Dyck, dyck

WORDS = 400
KEYS = jax.random.split(jax.random.key(1), WORDS)


@functools.cache
def words(length: int, pairs: int, **changes: float) -> np.ndarray:
    draw = jax.vmap(lambda key: dyck(key, length, pairs, **changes))
    return np.asarray(jax.jit(draw)(KEYS))


def depths(word: np.ndarray, pairs: int) -> list[int]:
    """Open brackets after each token; asserts that each closes the last that is open."""
    stack, found = [], []
    for token in word.tolist():
        assert 0 <= token < 2 * pairs
        if token < pairs:
            stack.append(token)
        else:
            assert stack
            assert stack.pop() == token - pairs
        found.append(len(stack))
    return found


@pytest.mark.parametrize(("length", "pairs", "max_depth"), [(64, 4, 4), (10, 3, 2), (6, 1, 1)])
def test_brackets_balance(length: int, pairs: int, max_depth: int) -> None:
    found = np.array([depths(word, pairs) for word in words(length, pairs, max_depth=max_depth)])
    assert found.shape == (WORDS, length)
    assert found.max() == max_depth
    assert not found[:, -1].any()


def test_a_word_of_odd_length_lacks_its_last_token() -> None:
    odd = words(9, 3, max_depth=2)
    np.testing.assert_array_equal(odd, words(10, 3, max_depth=2)[:, :9])
    assert all(depths(word, 3)[-1] == 1 for word in odd)


def test_frequencies() -> None:
    """Where both are allowed and the end is far, p of the tokens open; kinds are uniform."""
    pairs, chance = 4, 0.6
    drawn = words(64, pairs, max_depth=4)
    before = np.array([[0, *depths(word, pairs)[:-1]] for word in drawn])[:, :60]
    opens = drawn[:, :60] < pairs
    free = (before > 0) & (before < 4)
    assert opens[before == 0].all()
    assert not opens[before == 4].any()
    assert opens[free].mean() == pytest.approx(chance, abs=4 * (0.24 / free.sum()) ** 0.5)
    kinds = np.bincount(drawn[drawn < pairs], minlength=pairs)
    np.testing.assert_allclose(kinds / kinds.sum(), 1 / pairs, atol=0.02)


def test_the_end_closes_all() -> None:
    """Which needs no luck: brackets are always opened while they can be closed."""
    found = [depths(word, 2) for word in words(6, 2, open_probability=1.0, max_depth=9)]
    assert all(depth == [1, 2, 3, 2, 1, 0] for depth in found)


def test_half_of_the_closing_brackets_are_masked_and_follow_from_what_is_seen() -> None:
    """A stack that reads masks as closings restores every word."""
    distribution = Dyck(length=32, pairs=8)
    seen, whole = map(np.asarray, jax.jit(jax.vmap(distribution.example))(KEYS))
    closing, hidden = whole >= 8, seen == 16
    assert (hidden <= closing).all()
    np.testing.assert_array_equal(seen[~hidden], whole[~hidden])
    assert hidden.sum() / closing.sum() == pytest.approx(0.5, abs=0.03)
    for read, word in zip(seen[:50].tolist(), whole[:50].tolist(), strict=True):
        stack, restored = [], []
        for token in read:
            if token < 8:
                stack.append(token)
            restored.append(token if token < 8 else 8 + stack.pop())
        assert restored == word


def test_other_words_have_another_fingerprint() -> None:
    one = Dyck(length=16)
    others = [dataclasses.replace(one, **{name: 7}) for name in ("length", "pairs", "max_depth")]
    assert one.fingerprint() == Dyck(length=16).fingerprint()
    assert len({one.fingerprint(), *(other.fingerprint() for other in others)}) == 4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"length": 1}, "length 1 is not .* at least 2"),
        ({"pairs": 2**31}, "pairs 2147483648 is not .* at most 1,048,576"),
        ({"max_depth": 2**31}, "max_depth 2147483648 is not .* at most 1,000,000"),
        ({"open_probability": 1.5}, "open_probability 1.5 is not .* at most 1"),
    ],
)
def test_bad_sizes(fields: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Dyck(**{"length": 8, **fields})
