"""Windows over a text: the reference's in training, every token once in evaluation."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimetic_jax.data.text.windows import (
    batchify,
    eval_windows,
    train_windows,
    window,
    windows_at,
)
from mimetic_jax.errors import InputError


def reference(tokens: np.ndarray, batch: int, length: int, valid: int) -> list[tuple]:
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


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(sizes, st.integers(1, 5), st.integers(0, 40), st.integers(0, 4))
def test_training_windows_are_the_references(
    size: tuple[int, int], batch: int, more: int, rest: int
) -> None:
    length, valid = size
    tokens = np.arange((length + 1 + more) * batch + rest % batch, dtype=np.int32)
    steps = reference(tokens, batch, length, valid)
    assert train_windows(len(tokens), batch, length, valid) == len(steps)
    rows = jnp.asarray(batchify(tokens, batch))
    for index, (inputs, targets, context) in enumerate(steps):
        found_inputs, found_targets, weights = window(rows, index, length, valid)
        assert found_inputs.shape == found_targets.shape == weights.shape == (batch, length)
        shown = inputs.shape[1]
        np.testing.assert_array_equal(found_inputs[:, :shown], inputs)
        np.testing.assert_array_equal(found_targets[:, :shown], targets)
        counts = np.zeros((batch, length), np.float32)
        counts[:, context:shown] = 1
        np.testing.assert_array_equal(weights, counts)


def test_the_index_of_a_window_may_be_traced() -> None:
    rows = jnp.asarray(batchify(np.arange(100, dtype=np.int32), 3))
    traced = jax.jit(functools.partial(window, length=8, valid=5))
    assert train_windows(100, 3, 8, 5) == 6
    for index in range(6):
        jax.tree.map(np.testing.assert_array_equal, traced(rows, index), window(rows, index, 8, 5))


@given(sizes, st.integers(1, 7), st.integers(0, 60))
def test_evaluation_counts_every_token_once(size: tuple[int, int], batch: int, more: int) -> None:
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


def test_windows_at_their_starts() -> None:
    tokens = jnp.arange(10, 20, dtype=jnp.int32)
    inputs, targets = windows_at(tokens, jnp.array([0, 7]), 4)
    np.testing.assert_array_equal(inputs, [[10, 11, 12, 13], [17, 18, 19, 19]])
    np.testing.assert_array_equal(targets, [[11, 12, 13, 14], [18, 19, 19, 19]])


@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_evaluation_windows_do_not_depend_on_the_batch(batch: int) -> None:
    starts, weights = eval_windows(100, batch, 12, 5)
    alone, alone_weights = eval_windows(100, 1, 12, 5)
    count = len(alone)
    np.testing.assert_array_equal(starts.ravel()[:count], alone.ravel())
    np.testing.assert_array_equal(weights.reshape(-1, 12)[:count], alone_weights[:, 0])
    assert not weights.reshape(-1, 12)[count:].any()
    assert len(starts) == -(-count // batch)


def test_evaluation_counts_the_targets_of_the_reference_and_its_first_context() -> None:
    tokens = np.arange(50)
    theirs = [
        target
        for _, targets, context in reference(tokens, 1, 12, 5)
        for target in targets[0, context:].tolist()
    ]
    assert theirs == list(range(12 - 5 + 1, 50))
    starts, weights = eval_windows(50, 1, 12, 5)
    inputs = [
        (start, *np.nonzero(weight)[0])
        for start, weight in zip(starts.ravel(), weights[:, 0], strict=True)
    ]
    assert inputs[0] == (0, *range(12))
    assert inputs[1] == (5, *range(7, 12))


def test_short_texts_and_contradicting_sizes_are_refused() -> None:
    for make in (train_windows, eval_windows):
        with pytest.raises(InputError, match="a text of 80 tokens is too short for windows of 80"):
            make(80, 1, 80, 40)
        with pytest.raises(InputError, match="valid 41 isn't between 1 and the window's length 40"):
            make(1000, 1, 40, 41)
        with pytest.raises(InputError, match="valid 0 "):
            make(1000, 1, 40, 0)
        with pytest.raises(InputError, match="batch 0 must be at least 1"):
            make(1000, 0, 40, 20)
    with pytest.raises(
        InputError, match=r"1000 tokens in 16 rows are 62 per row, too short for .* 80"
    ):
        train_windows(1000, 16, 80, 40)
    with pytest.raises(InputError, match="batch 8 isn't between 1 and the 7 tokens"):
        batchify(np.arange(7), 8)
