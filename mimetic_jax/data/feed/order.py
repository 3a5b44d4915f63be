"""Which examples a step sees, as a pure function of (key, step): that makes resuming exact.

One order serves images that are resident on the devices and images that stream from disk: the same
key gives both the same epochs.
"""

from __future__ import annotations

import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np


def epoch_order(key: jax.Array, epoch: jax.Array | int, num_examples: int) -> jax.Array:
    """Return the order of the examples in one epoch: `permutation(fold_in(key, epoch), N)`."""
    return jax.random.permutation(jax.random.fold_in(key, epoch), num_examples).astype(jnp.int32)


def orders_of_dispatch(
    key: jax.Array, step: jax.Array, num_examples: int, steps_per_epoch: int, max_dispatch: int
) -> tuple[jax.Array, jax.Array]:
    """Return the orders [E, N] of the epochs that a dispatch from a step on can touch, and the
    first of these epochs."""
    first_epoch = step // steps_per_epoch
    epochs = first_epoch + jnp.arange(max_dispatch // steps_per_epoch + 2)
    return jax.vmap(lambda epoch: epoch_order(key, epoch, num_examples))(epochs), first_epoch


class TrainOrder:
    """The global batches of training, on the host.

    An epoch is N // batch steps. With `repeats` r each image of the epoch's order comes r times in
    a row, the sequence is cut at the same N // batch steps (so an epoch sees about N / r images),
    and within a batch copies are about batch / r rows apart, so that processes share them out.

    Reference:
        Hoffer et al. 2020, "Augment your batch"; RASampler in facebookresearch/deit.
    """

    def __init__(self, num_examples: int, batch: int, repeats: int, key: jax.Array) -> None:
        self.batch, self.repeats = batch, repeats
        self.steps_per_epoch = num_examples // batch
        self._spread = np.argsort(np.arange(batch) % repeats, kind="stable")
        self._lock = threading.Lock()

        @functools.lru_cache(maxsize=2)  # threads may be on both sides of an end
        def order(epoch: int) -> np.ndarray:
            return np.asarray(_compiled_order(key, epoch, num_examples))

        self._order = order

    def index(self, step: int, row: int) -> int:
        """Return the example in one row of one step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        place = (position * self.batch + int(self._spread[row])) // self.repeats
        # Threads that decode meet at an epoch's first example: one of them computes the order.
        with self._lock:
            return int(self._order(epoch)[place])


_compiled_order = jax.jit(epoch_order, static_argnums=2)


def padded_batches(num_examples: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices int32 and weights float32 [S, B], S = ⌈N / B⌉; padding has index 0 and weight 0.

    >>> indices, weights = padded_batches(3, 2)
    >>> indices.tolist(), weights.tolist()
    ([[0, 1], [2, 0]], [[1.0, 1.0], [1.0, 0.0]])
    """
    index = np.arange(-(-num_examples // batch) * batch, dtype=np.int32).reshape(-1, batch)
    real = index < num_examples
    return np.where(real, index, np.int32(0)), real.astype(np.float32)
