"""Windows over a text: the reference's in training, every token once in evaluation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimetic_jax.data.text import windows
from mimetic_jax.data.text.windows import batchify, eval_windows, train_windows
from tests.data.made import refused


def reference(tokens, batch, length, valid):
    """The loop of Bai et al.'s word_cnn: inputs, targets and number of context positions."""
    row = len(tokens) // batch
    rows = tokens[: row * batch].reshape(batch, row)
    context = length - valid
    steps = []
    for start in range(0, row - 1, valid):
        if start + context >= row - 1:
            continue
        size = min(length, row - 1 - start)
        steps.append((rows[:, start : start + size], rows[:, start + 1 : start + 1 + size]))
    return [(*step, context) for step in steps]


sizes = st.integers(1, 12).flatmap(
    lambda length: st.tuples(st.just(length), st.integers(1, length))
)


def training_windows_are_the_references(length, valid, batch, more, rest):
    tokens = np.arange((length + 1 + more) * batch + rest % batch, dtype=np.int32)
    steps = reference(tokens, batch, length, valid)
    assert train_windows(len(tokens), batch, length, valid) == (len(steps), 0)
    rows = jnp.asarray(batchify(tokens, batch))
    traced = jax.jit(functools.partial(windows.window, length=length, valid=valid))
    for index, (inputs, targets, context) in enumerate(steps):
        found_inputs, found_targets, weights = traced(rows, index * valid)
        assert found_inputs.shape == found_targets.shape == weights.shape == (batch, length)
        shown = inputs.shape[1]
        np.testing.assert_array_equal(found_inputs[:, :shown], inputs)
        np.testing.assert_array_equal(found_targets[:, :shown], targets)
        counts = np.zeros((batch, length), np.float32)
        counts[:, context:shown] = 1
        np.testing.assert_array_equal(weights, counts)


@given(sizes, st.integers(1, 7), st.integers(0, 60))
def test_evaluation_counts_every_token_once(size, batch, more):
    length, valid = size
    num_tokens = length + 1 + more
    starts, weights = eval_windows(num_tokens, batch, length, valid)
    assert starts.dtype == np.int32
    assert weights.dtype == np.float32
    assert starts.shape[1:] == (batch,)
    assert weights.shape == (*starts.shape, length)
    assert set(weights.ravel().tolist()) <= {0.0, 1.0}
    step, row, position = np.nonzero(weights)
    counted = starts[step, row] + position + 1
    assert sorted(counted) == list(range(1, num_tokens))
    # At least length - valid tokens before the last input, or all that precede it.
    assert (position >= np.minimum(counted - 1, length - valid)).all()
    assert not starts[~weights.any(-1)].any()
    # The same windows for any batch, and no more padding than to fill the last one.
    alone, alone_weights = eval_windows(num_tokens, 1, length, valid)
    assert len(starts) == -(-len(alone) // batch)
    np.testing.assert_array_equal(starts.ravel()[: len(alone)], alone.ravel())
    np.testing.assert_array_equal(weights.reshape(-1, length)[: len(alone)], alone_weights[:, 0])


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(sizes, st.integers(1, 5), st.integers(0, 40), st.integers(0, 4))
def test_training_windows_of_any_size(size, batch, more, rest):
    training_windows_are_the_references(*size, batch, more, rest)


def test_training_windows():
    training_windows_are_the_references(8, 5, 3, 24, 1)


def test_windows_at_their_starts():
    tokens = jnp.arange(10, 20, dtype=jnp.int32)
    inputs, targets = windows.windows_at(tokens, jnp.array([0, 7]), 4)
    np.testing.assert_array_equal(inputs, [[10, 11, 12, 13], [17, 18, 19, 19]])
    np.testing.assert_array_equal(targets, [[11, 12, 13, 14], [18, 19, 19, 19]])


@pytest.mark.parametrize(
    ("make", "sizes", "words"),
    [
        (eval_windows, (80, 1, 80, 40), "a text of 80 tokens is too short for windows of 80"),
        (train_windows, (1000, 1, 40, 41), "valid 41 isn't between 1 and the window's length 40"),
        (train_windows, (1000, 1, 40, 0), "valid 0 "),
        (train_windows, (1000, 16, 80, 40), "16 rows are 62 per row, too short for windows of 80"),
    ],
)
def test_short_texts_and_contradicting_sizes_are_refused(make, sizes, words):
    refused(lambda: make(*sizes), words)
