"""The order of streamed examples: whole epochs, repeated augmentation, one stream for ever."""

import collections

import numpy as np
import pytest

from mimetic_jax.data.feed.order import TrainOrder, epoch_order, example_rng
from mimetic_jax.errors import InputError


@pytest.mark.parametrize("num_examples", [1, 2, 17, 1000])
def test_an_epoch_is_a_permutation(num_examples: int) -> None:
    for epoch in range(3):
        order = epoch_order(num_examples, 7, epoch)
        assert order.dtype == np.int32
        assert np.array_equal(np.sort(order), np.arange(num_examples))


def test_the_order_is_the_ranks_of_philox_numbers() -> None:
    """Philox 4x64-10 written out, so that the order outlives NumPy's generators."""
    mask = 2**64 - 1

    def philox(counter: list[int], key: list[int]) -> list[int]:
        (a, b, c, d), (k, m) = counter, key
        for _ in range(10):
            x, y = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
            a, b, c, d = (y >> 64) ^ b ^ k, y & mask, (x >> 64) ^ d ^ m, x & mask
            k, m = (k + 0x9E3779B97F4A7C15) & mask, (m + 0xBB67AE8584CAA73B) & mask
        return [a, b, c, d]

    # NumPy counts before it draws.
    numbers = [n for block in range(3) for n in philox([1 + block, 5, 0, 0], [42, 0])]
    assert epoch_order(12, 42, 5).tolist() == sorted(range(12), key=numbers.__getitem__)
    first = philox([1, 3, 9, 0], [42, 1])[0]
    assert example_rng(42, step=9, row=3).random() == (first >> 11) * 2.0**-53


def test_epochs_and_seeds_differ() -> None:
    orders = {epoch_order(100, seed, epoch).tobytes() for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_crops_differ_between_seeds_steps_and_rows() -> None:
    draws = {
        example_rng(seed, step, row).random()
        for seed in range(3)
        for step in range(3)
        for row in range(3)
    }
    assert len(draws) == 27


@pytest.mark.parametrize(("num_examples", "batch"), [(10, 3), (12, 4), (7, 7), (5, 1), (9, 5)])
def test_an_epoch_sees_different_examples(num_examples: int, batch: int) -> None:
    order = TrainOrder(num_examples, batch, 1, 0)
    steps = num_examples // batch
    assert order.steps_per_epoch == steps
    for epoch in range(3):
        seen = np.concatenate([order.batch_indices(epoch * steps + step) for step in range(steps)])
        assert np.array_equal(seen, epoch_order(num_examples, 0, epoch)[: steps * batch])


@pytest.mark.parametrize(
    ("num_examples", "batch", "repeats"), [(40, 12, 3), (40, 10, 3), (23, 8, 2), (9, 9, 4)]
)
def test_repeated_augmentation_is_that_of_deit(num_examples: int, batch: int, repeats: int) -> None:
    """RASampler: repeat each, cut the epoch to what it would have without repeats."""
    order = TrainOrder(num_examples, batch, repeats, 3)
    steps = num_examples // batch
    sequence = np.repeat(epoch_order(num_examples, 3, 1), repeats)[: steps * batch]
    for position in range(steps):
        expected = sequence[position * batch : (position + 1) * batch]
        taken = order.batch_indices(steps + position)
        assert collections.Counter(taken.tolist()) == collections.Counter(expected.tolist())


def test_repeats_are_shared_out() -> None:
    """Copies of an image go to different processes when there are as many as repeats."""
    rows = TrainOrder(100, 12, 3, 0).batch_indices(0).reshape(3, 4)
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])
    assert len(set(rows[0].tolist())) == 4


def test_one_index_is_that_of_the_batch() -> None:
    order = TrainOrder(29, 6, 2, 5)
    for step in (0, 3, 4, 11):
        assert [order.index(step, row) for row in range(6)] == order.batch_indices(step).tolist()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((10, 0, 1, 0), "batch 0 .* 10 training examples"),
        ((10, 11, 1, 0), "batch 11 .* 10 training examples"),
        ((10, 5, 0, 0), "repeats 0"),
        ((10, 5, 1, -1), "seed -1"),
    ],
)
def test_impossible_orders_are_refused(arguments: tuple[int, int, int, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        TrainOrder(*arguments)
