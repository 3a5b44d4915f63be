"""Which examples a step sees, as a pure function of (key, step): that makes resuming exact.

One order serves images that are resident on the devices and images that stream from disk: the same
key gives both the same epochs.
"""

from __future__ import annotations

import dataclasses
import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np


def epoch_order(key: jax.Array, epoch: jax.Array | int, num_examples: int) -> jax.Array:
    """The order of the examples in one epoch: `permutation(fold_in(key, epoch), N)`.

    The epoch, counted from 0, may be traced.
    """
    return jax.random.permutation(jax.random.fold_in(key, epoch), num_examples).astype(jnp.int32)


def epoch_orders(
    key: jax.Array, first_epoch: jax.Array | int, num_epochs: int, num_examples: int
) -> jax.Array:
    """The orders of a few epochs, int32 [E, N]: row e is `epoch_order(key, first_epoch + e, N)`.

    So an epoch's order doesn't depend on the chunk of epochs it was drawn with.
    """
    epochs = first_epoch + jnp.arange(num_epochs)
    return jax.vmap(lambda epoch: epoch_order(key, epoch, num_examples))(epochs)


def batch_indices(
    orders: jax.Array, first_epoch: jax.Array | int, step: jax.Array | int, batch: int
) -> jax.Array:
    """The examples of a step, counted from the start of training: int32 [B], all different.

    An epoch is N // batch steps; its last N % batch examples are left out, others each epoch.

    Args:
        orders: int32 [E, N] of `epoch_orders`. They must hold the epoch of `step`: for a step
            outside of them the nearest epoch's order is taken.
        first_epoch: the epoch of row 0; may be traced.
        step: may be traced.
        batch: B, static.
    """
    num_examples = orders.shape[1]
    epoch, position = jnp.divmod(step, num_examples // batch)
    start = (epoch - first_epoch, position * batch)
    return jax.lax.dynamic_slice(orders, start, (1, batch))[0]


@dataclasses.dataclass(frozen=True, eq=False)
class TrainOrder:
    """The global batches of training, on the host.

    An epoch is N // batch steps. With `repeats` r each image of the epoch's order comes r times in
    a row, the sequence is cut at the same N // batch steps (so an epoch sees about N / r images),
    and within a batch copies are about batch / r rows apart, so that processes share them out.

    >>> order = TrainOrder(num_examples=5, batch=2, repeats=1, key=jax.random.key(0))
    >>> order.steps_per_epoch, len({order.index(step, row) for step in (0, 1) for row in (0, 1)})
    (2, 4)

    Args:
        num_examples: N.
        batch: rows in a global batch, of all processes together.
        repeats: r, 1 for none.
        key: the key of the data order.

    Reference:
        Hoffer et al. 2020, "Augment your batch"; RASampler in facebookresearch/deit.
    """

    num_examples: int
    batch: int
    repeats: int
    key: jax.Array

    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, init=False)
    _epochs: dict[int, np.ndarray] = dataclasses.field(default_factory=dict, init=False)

    @property
    def steps_per_epoch(self) -> int:
        return self.num_examples // self.batch

    def index(self, step: int, row: int) -> int:
        """The example in one row of one step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        place = (position * self.batch + int(self._spread[row])) // self.repeats
        return int(self._epoch(epoch)[place])

    def _epoch(self, epoch: int) -> np.ndarray:
        # Threads that decode meet at an epoch's first example: one of them computes the order.
        with self._lock:
            if epoch not in self._epochs:
                while len(self._epochs) > 1:  # two: threads may be on both sides of an end
                    del self._epochs[min(self._epochs)]
                self._epochs[epoch] = np.asarray(
                    _compiled_order(self.key, epoch, self.num_examples)
                )
            return self._epochs[epoch]

    @functools.cached_property
    def _spread(self) -> np.ndarray:
        return np.argsort(np.arange(self.batch) % self.repeats, kind="stable")


_compiled_order = jax.jit(epoch_order, static_argnums=2)


def padded_batches(num_examples: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Batches of one size that count every example exactly once.

    >>> indices, weights = padded_batches(3, 2)
    >>> indices.tolist(), weights.tolist()
    ([[0, 1], [2, 0]], [[1.0, 1.0], [1.0, 0.0]])

    Returns:
        indices int32 [S, B] and weights float32 [S, B] with S = ceil(N / B); padding has index 0
        and weight 0.
    """
    index = np.arange(-(-num_examples // batch) * batch, dtype=np.int32).reshape(-1, batch)
    real = index < num_examples
    return np.where(real, index, np.int32(0)), real.astype(np.float32)
