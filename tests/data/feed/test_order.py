"""The order of examples: complete epochs, and a pure function of (key, step)."""

import collections
import functools
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.data import batch_indices, epoch_orders, padded_batches
from mimetic_jax.data.feed.order import TrainOrder, epoch_order
from mimetic_jax.errors import InputError

KEY = jax.random.key(3)


@pytest.mark.parametrize("num_examples", [1, 2, 17, 1000])
def test_rows_are_permutations(num_examples: int) -> None:
    rows = np.asarray(epoch_orders(KEY, 5, 4, num_examples))
    assert rows.dtype == np.int32
    assert np.array_equal(np.sort(rows), np.tile(np.arange(num_examples), (4, 1)))


def test_epochs_and_keys_differ() -> None:
    rows = epoch_orders(KEY, 0, 3, 100)
    other = epoch_orders(jax.random.key(4), 0, 3, 100)
    assert len({bytes(row) for row in np.concatenate([rows, other])}) == 6


def test_an_epoch_does_not_depend_on_its_chunk() -> None:
    whole = np.asarray(epoch_orders(KEY, 0, 6, 50))
    traced = jax.jit(lambda first: epoch_orders(KEY, first, 2, 50))
    for first in range(5):
        assert np.array_equal(traced(first), whole[first : first + 2])
    expected = jax.random.permutation(jax.random.fold_in(KEY, 4), 50)
    assert np.array_equal(whole[4], expected)


@pytest.mark.parametrize(("num_examples", "batch"), [(10, 3), (12, 4), (7, 7), (5, 1), (9, 5)])
def test_an_epoch_sees_distinct_examples(num_examples: int, batch: int) -> None:
    rows = epoch_orders(KEY, 0, 3, num_examples)
    steps = num_examples // batch
    take = jax.jit(functools.partial(batch_indices, batch=batch))
    for epoch in range(3):
        seen = np.concatenate([take(rows, 0, epoch * steps + step) for step in range(steps)])
        assert seen.dtype == np.int32
        assert np.array_equal(seen, rows[epoch, : steps * batch])
        assert len(set(seen.tolist())) == steps * batch


def test_the_remainder_differs_between_epochs() -> None:
    rows = np.asarray(epoch_orders(KEY, 0, 4, 101))
    assert len({int(row[-1]) for row in rows}) > 1


def test_a_step_does_not_depend_on_the_chunk_it_is_drawn_from() -> None:
    num_examples, batch, steps = 23, 5, 4
    whole = epoch_orders(KEY, 0, 5, num_examples)
    for first in range(4):
        chunk = epoch_orders(KEY, first, 2, num_examples)
        for step in range(first * steps, (first + 2) * steps):
            assert np.array_equal(
                batch_indices(chunk, first, step, batch), batch_indices(whole, 0, step, batch)
            )


def test_steps_and_members_can_be_mapped() -> None:
    rows = epoch_orders(KEY, 2, 2, 12)
    steps = jnp.arange(6, 12)
    mapped = jax.vmap(lambda step: batch_indices(rows, 2, step, 4))(steps)
    scanned = jax.lax.map(lambda step: batch_indices(rows, 2, step, 4), steps)
    assert np.array_equal(mapped, rows.reshape(6, 4))
    assert np.array_equal(scanned, mapped)

    keys = jax.random.split(KEY, 3)
    members = jax.vmap(lambda key: epoch_orders(key, 0, 2, 12))(keys)
    assert np.array_equal(members[1], epoch_orders(keys[1], 0, 2, 12))


@pytest.mark.parametrize("batch", [0, -1, 11])
def test_an_impossible_batch_is_refused(batch: int) -> None:
    with pytest.raises(InputError, match=f"batch {batch} .* 10 training examples"):
        batch_indices(epoch_orders(KEY, 0, 1, 10), 0, 0, batch)


def test_padded_batches_count_every_example_once() -> None:
    for num_examples in range(1, 41):
        for batch in (1, 2, 3, 7, 16, 39, 40, 64):
            indices, weights = padded_batches(num_examples, batch)
            assert indices.dtype == np.int32
            assert weights.dtype == np.float32
            assert indices.shape == weights.shape == (-(-num_examples // batch), batch)
            counts = np.bincount(indices.ravel(), weights.ravel(), minlength=num_examples)
            assert np.array_equal(counts, np.ones(num_examples))
            assert set(weights.ravel().tolist()) <= {0.0, 1.0}
            assert not indices[weights == 0].any()


@pytest.mark.parametrize(("num_examples", "batch"), [(0, 4), (4, 0), (3, -2)])
def test_padded_batches_refuse_sizes_below_one(num_examples: int, batch: int) -> None:
    with pytest.raises(InputError, match=f"{num_examples} examples by {batch}"):
        padded_batches(num_examples, batch)


def test_streamed_images_come_in_the_order_of_resident_ones() -> None:
    orders = epoch_orders(KEY, 0, 3, 23)
    streamed = TrainOrder(23, 5, 1, KEY)
    for step in range(12):
        assert np.array_equal(streamed.batch_indices(step), batch_indices(orders, 0, step, 5))


def test_threads_that_meet_at_the_end_of_an_epoch_agree() -> None:
    order = TrainOrder(50, 10, 1, KEY)
    steps = [step for step in range(20) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(order.batch_indices, steps))
    for step, indices in zip(steps, found, strict=True):
        assert np.array_equal(indices, TrainOrder(50, 10, 1, KEY).batch_indices(step))


@pytest.mark.parametrize(("num_examples", "batch"), [(10, 3), (12, 4), (7, 7), (5, 1), (9, 5)])
def test_an_epoch_sees_different_examples(num_examples: int, batch: int) -> None:
    order = TrainOrder(num_examples, batch, 1, KEY)
    steps = num_examples // batch
    assert order.steps_per_epoch == steps
    for epoch in range(3):
        seen = np.concatenate([order.batch_indices(epoch * steps + step) for step in range(steps)])
        assert np.array_equal(seen, epoch_order(KEY, epoch, num_examples)[: steps * batch])


@pytest.mark.parametrize(
    ("num_examples", "batch", "repeats"), [(40, 12, 3), (40, 10, 3), (23, 8, 2), (9, 9, 4)]
)
def test_repeated_augmentation_is_that_of_deit(num_examples: int, batch: int, repeats: int) -> None:
    """RASampler: repeat each, cut the epoch to what it would have without repeats."""
    order = TrainOrder(num_examples, batch, repeats, KEY)
    steps = num_examples // batch
    sequence = np.repeat(np.asarray(epoch_order(KEY, 1, num_examples)), repeats)[: steps * batch]
    for position in range(steps):
        expected = sequence[position * batch : (position + 1) * batch]
        taken = order.batch_indices(steps + position)
        assert collections.Counter(taken.tolist()) == collections.Counter(expected.tolist())


def test_repeats_are_shared_out() -> None:
    """Copies of an image go to different processes when there are as many as repeats."""
    rows = TrainOrder(100, 12, 3, KEY).batch_indices(0).reshape(3, 4)
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])
    assert len(set(rows[0].tolist())) == 4


def test_one_index_is_that_of_the_batch() -> None:
    order = TrainOrder(29, 6, 2, KEY)
    for step in (0, 3, 4, 11):
        assert [order.index(step, row) for row in range(6)] == order.batch_indices(step).tolist()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((10, 0, 1), "batch 0 .* 10 training examples"),
        ((10, 11, 1), "batch 11 .* 10 training examples"),
        ((10, 5, 0), "repeats 0"),
    ],
)
def test_impossible_orders_are_refused(arguments: tuple[int, int, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        TrainOrder(*arguments, KEY)
