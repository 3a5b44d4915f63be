"""Orders of examples are pure functions of (key, step); feeds promise the shapes that they have."""

import types
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

from configs.default import default
from mimetic_jax.data.feed.order import TrainOrder, padded_batches
from mimetic_jax.data.feed.resident import ResidentImages
from mimetic_jax.data.feed.rows import TokenRows
from mimetic_jax.data.sets.dataset import DatasetInfo
from mimetic_jax.data.text.tokens import TextInfo
from mimetic_jax.train.cluster.mesh import BATCH, make_mesh
from mimetic_jax.train.tasks import TASKS
from tests.data.made import examples_of

KEY = jax.random.key(3)


def by_definition(epoch: int, num_examples: int) -> np.ndarray:
    """A permutation from a key of the epoch's own."""
    return np.asarray(jax.random.permutation(jax.random.fold_in(KEY, epoch), num_examples))


def epoch_of(order: TrainOrder, epoch: int) -> np.ndarray:
    """The examples of its steps, [S, B]."""
    steps = range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch)
    return np.stack([examples_of(order, step) for step in steps])


@pytest.mark.parametrize(("num_examples", "batch"), [(10, 3), (7, 7), (5, 1)])
def test_an_epoch_sees_distinct_examples_in_its_order(num_examples, batch):
    """The same for images on the devices, from any dispatch on, and for images that stream."""
    steps = num_examples // batch
    streamed = TrainOrder(num_examples, batch, 1, KEY)
    assert streamed.steps_per_epoch == steps
    info = DatasetInfo("numbers", (1, 1, 1), num_examples, num_examples, 1, "")
    sharding = NamedSharding(make_mesh(devices=jax.devices()[:1]), BATCH)
    feed = ResidentImages(info, batch, 1, 2 * steps, sharding)
    numbers = jnp.arange(num_examples)

    @jax.jit
    def chosen(first, step):
        arrays = numbers[:, None, None, None], numbers
        return feed.examples(arrays, feed.begin(arrays, KEY, first), step)

    for epoch in range(1, 4):
        expected = by_definition(epoch, num_examples)[: steps * batch].reshape(steps, batch)
        for first in ((epoch - 1) * steps, epoch * steps - 1, epoch * steps):
            for step in range(steps):
                images, labels = chosen(first, epoch * steps + step)
                np.testing.assert_array_equal(labels, expected[step])
                np.testing.assert_array_equal(images.ravel(), labels)
        np.testing.assert_array_equal(epoch_of(streamed, epoch), expected)


@pytest.mark.parametrize(
    ("row", "batch", "length", "valid"), [(41, 2, 7, 4), (12, 1, 8, 8), (9, 3, 8, 3), (21, 1, 4, 1)]
)
def test_an_epoch_of_a_text_has_distinct_full_windows_in_an_order_of_its_own(
    row, batch, length, valid
):
    """From any dispatch on; over the epochs every target counts that has its context."""
    rows = jnp.arange(batch * row).reshape(batch, row)
    info = TextInfo("numbers", "word", batch * row, batch * row, 0, 0, "")
    sharding = NamedSharding(make_mesh(devices=jax.devices()[:1]), BATCH)
    feed = TokenRows(info, batch, 1, length, valid, True, 3, sharding)
    steps, context, counted, orders = feed.steps_per_epoch, length - valid, [], set()

    @jax.jit
    def examples(key, first, step):
        return feed.examples(rows, feed.begin(rows, key, first), step)

    for epoch in range(40):
        order = []
        for step in range(epoch * steps, (epoch + 1) * steps):
            inputs, targets, weights = map(np.asarray, examples(KEY, max(step - 2, 0), step))
            assert (inputs == inputs[:, :1] + np.arange(length)).all()
            assert (targets == inputs + 1).all()
            assert (targets // row == np.arange(batch)[:, None]).all()
            assert (weights == (np.arange(length) >= context)).all()
            order.append(int(inputs[0, 0]))
            counted.append(targets[:, context:])
        assert len(set(order)) == steps
        assert {abs(one - other) % valid for one in order for other in order} == {0}
        orders.add(tuple(order))
    every = np.arange(batch * row).reshape(batch, row)[:, context + 1 :]
    assert np.array_equal(np.unique(counted), every.ravel())
    first = {int(examples(jax.random.key(seed), 0, 0)[0][0, 0]) for seed in range(20)}
    alone = row == length + 1  # one window that starts at 0
    assert (len(orders) == len(first) == 1) if alone else (len(orders) > 3 and len(first) > 1)


def test_padded_batches_count_every_example_once():
    for num_examples in range(1, 41):
        for batch in (1, 2, 3, 7, 16, 39, 40, 64):
            indices, weights = padded_batches(num_examples, batch)
            assert (indices.dtype, weights.dtype) == (np.int32, np.float32)
            assert indices.shape == weights.shape == (-(-num_examples // batch), batch)
            counts = np.bincount(indices.ravel(), weights.ravel(), minlength=num_examples)
            np.testing.assert_array_equal(counts, np.ones(num_examples))
            assert set(weights.ravel().tolist()) <= {0.0, 1.0}
            assert not indices[weights == 0].any()


def test_threads_that_meet_at_the_end_of_an_epoch_agree():
    order = TrainOrder(50, 10, 1, KEY)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda epoch: epoch_of(order, epoch), sorted([*range(4)] * 4)))
    expected = np.stack([by_definition(epoch, 50).reshape(5, 10) for epoch in range(4)])
    np.testing.assert_array_equal(found, expected.repeat(4, axis=0))


@pytest.mark.parametrize(
    ("num_examples", "batch", "repeats"), [(40, 12, 3), (40, 10, 3), (23, 8, 2), (9, 9, 4)]
)
def test_repeated_augmentation_is_that_of_deit(num_examples, batch, repeats):
    """RASampler: repeat each, cut the epoch to what it would have without repeats."""
    found = epoch_of(TrainOrder(num_examples, batch, repeats, KEY), 1)
    expected = np.repeat(by_definition(1, num_examples), repeats)[: found.size]
    np.testing.assert_array_equal(np.sort(found), np.sort(expected.reshape(found.shape)))


def test_repeats_are_shared_out():
    """Copies of an image go to different processes when there are as many as repeats."""
    rows = examples_of(TrainOrder(100, 12, 3, KEY), 0).reshape(3, 4)
    np.testing.assert_array_equal(rows, np.tile(rows[0], (3, 1)))
    assert len(set(rows[0].tolist())) == 4


SMALL = {
    "images": {"eval.batch": 20},
    "text": {"batch": 4, "data.length": 8, "data.valid": 6, "eval.batch": 2},
}


@pytest.mark.parametrize("name", SMALL)
def test_shapes_are_those_of_the_data(name):
    """Shapes are what is compiled with before data are there, as to measure its memory."""
    config, task = default(name), TASKS[name]
    config.update_from_flattened_dict(SMALL[name])
    info, dataset = task.describe(config), None
    if name == "images":
        dataset = task.load(config)
    elif name == "text":
        sizes = {"train": info.num_train, "valid": info.num_valid, "test": info.num_test}
        dataset = types.SimpleNamespace(**{n: np.zeros(s, np.int32) for n, s in sizes.items()})
    _, feed = task.build(config, info, make_mesh(devices=jax.devices()[:1]))
    arrays = next(feed.session(feed.place(dataset), jax.random.key(0), 0, 1))

    def described(tree):
        return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]

    assert described(arrays) == described(feed.shapes())
