"""Sequences of recall: every answer follows from what comes before, checked in Python."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.data.recall.sequences import SETS, Associative, Copying

SMALL = [Copying(vocabulary=5, length=7), Associative(vocabulary=40, pairs=5, queries=3)]
by_set = pytest.mark.parametrize("sequences", SMALL, ids=lambda s: type(s).__name__)


@functools.cache
def drawn(sequences: Any, times: int = 1) -> tuple[np.ndarray, np.ndarray]:
    keys = jax.random.split(jax.random.key(1), 4000)
    inputs, targets = jax.jit(jax.vmap(lambda key: sequences.example(key, times)))(keys)
    return np.asarray(inputs), np.asarray(targets)


def answers(sequences: Any, inputs: list[int]) -> dict[int, int]:
    """What a reader who knows the rules gives, by position."""
    if isinstance(sequences, Copying):
        begin, separator, end = (sequences.vocabulary + i for i in range(3))
        middle = inputs.index(separator)
        assert inputs[0] == begin
        string = inputs[1:middle]
        return {middle + i: token for i, token in enumerate([*string, end])}
    pairs = dict(zip(inputs[::2], inputs[1::2], strict=False))
    seen: set[int] = set()
    found = {}
    for at in range(0, len(inputs), 2):
        if inputs[at] in seen:
            found[at] = pairs[inputs[at]]
        seen.add(inputs[at])
    return found


@by_set
@pytest.mark.parametrize("times", [1, 2])
def test_every_answer_follows_from_what_comes_before(sequences, times):
    inputs, targets = drawn(sequences, times)
    assert inputs.shape == targets.shape == (4000, sequences.inputs(times))
    assert (inputs.min() >= 0, inputs.max() < sequences.tokens) == (True, True)
    for read, asked in zip(inputs[:300].tolist(), targets[:300].tolist(), strict=True):
        expected = answers(sequences, read)
        assert {at: token for at, token in enumerate(asked) if token >= 0} == expected
        count = {Copying: 7 * times + 1, Associative: 3 * times}
        assert len(expected) == count[type(sequences)]


def test_draws_are_uniform():
    """Tokens of strings, and answers of pairs."""
    copied = drawn(SMALL[0])[0][:, 1:8]
    assert np.bincount(copied.ravel(), minlength=5) / copied.size == pytest.approx(0.2, abs=0.01)
    inputs, targets = drawn(SMALL[1])
    asked = targets[targets >= 0]
    assert (asked.min(), asked.max()) == (20, 39)
    assert np.bincount(asked - 20) / asked.size == pytest.approx(0.05, abs=0.01)
    # Each pair is asked for equally often.
    keys = inputs[:, :10:2]
    order = (inputs[:, 10::2][:, :, None] == keys[:, None]).argmax(-1)
    assert np.bincount(order.ravel()) / order.size == pytest.approx(0.2, abs=0.02)


@by_set
def test_other_sequences_have_another_fingerprint(sequences):
    others = [
        dataclasses.replace(sequences, **{field.name: changed})
        for field in dataclasses.fields(sequences)
        if (changed := {"test_at": (1,), "queries": 2, "pairs": 4}.get(field.name, 60))
    ]
    assert len({each.fingerprint() for each in (sequences, *others)}) == 1 + len(others)
    assert dataclasses.replace(sequences).fingerprint() == sequences.fingerprint()


def test_lengths_to_test_at():
    assert Copying(test_at=(4, 2)).times == (1, 2, 4)
    assert "256 test sequences of 34, 66, 130 tokens" in str(Copying())
    assert set(SETS) == {"copying", "associative"}


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (Copying, {"length": 0}, "length 0 is not .* at least 2"),
        (Associative, {"vocabulary": 16}, "4 x pairs 8 are more than the 8 keys of vocabulary 16"),
        (Associative, {"pairs": 4}, "queries 8 are more than pairs 4"),
    ],
)
def test_bad_sizes(kind, fields, words):
    with pytest.raises(InputError, match=words):
        kind(**fields)
