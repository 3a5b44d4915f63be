"""Which examples a step sees, as a pure function of (key, step): that makes resuming exact."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.errors import InputError


def epoch_permutations(
    key: jax.Array, first_epoch: jax.Array | int, num_epochs: int, num_examples: int
) -> jax.Array:
    """The order of the examples in each of a few epochs.

    Row e is `permutation(fold_in(key, first_epoch + e), num_examples)`, so an epoch's order doesn't
    depend on the chunk of epochs it was drawn with.

    Args:
        key: the key of the data order.
        first_epoch: the epoch of row 0; may be traced.
        num_epochs: E, static.
        num_examples: N, static.

    Returns:
        int32 [E, N].
    """

    def permutation(epoch: jax.Array) -> jax.Array:
        return jax.random.permutation(jax.random.fold_in(key, epoch), num_examples)

    return jax.vmap(permutation)(first_epoch + jnp.arange(num_epochs)).astype(jnp.int32)


def batch_indices(
    permutations: jax.Array, first_epoch: jax.Array | int, step: jax.Array | int, batch: int
) -> jax.Array:
    """The examples of a step, counted from the start of training.

    An epoch is N // batch steps; its last N % batch examples are left out, others each epoch.

    Args:
        permutations: int32 [E, N] of `epoch_permutations`. They must hold the epoch of `step`:
            for a step outside of them the nearest epoch's order is taken.
        first_epoch: the epoch of row 0; may be traced.
        step: may be traced.
        batch: B, static.

    Returns:
        int32 [B], all different.

    Raises:
        InputError: batch is below 1 or above N.
    """
    num_examples = permutations.shape[1]
    if not 1 <= batch <= num_examples:
        raise InputError(f"batch {batch} isn't between 1 and the {num_examples} training examples")
    epoch, position = jnp.divmod(step, num_examples // batch)
    start = (epoch - first_epoch, position * batch)
    return jax.lax.dynamic_slice(permutations, start, (1, batch))[0]


def padded_batches(num_examples: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Batches of one size that count every example exactly once.

    >>> indices, weights = padded_batches(3, 2)
    >>> indices.tolist(), weights.tolist()
    ([[0, 1], [2, 0]], [[1.0, 1.0], [1.0, 0.0]])

    Args:
        num_examples: N, at least 1.
        batch: B, at least 1.

    Returns:
        indices int32 [S, B] and weights float32 [S, B] with S = ceil(N / B); padding has index 0
        and weight 0.

    Raises:
        InputError: N or B is below 1.
    """
    if num_examples < 1 or batch < 1:
        raise InputError(f"can't batch {num_examples} examples by {batch}: both must be at least 1")
    index = np.arange(-(-num_examples // batch) * batch, dtype=np.int32).reshape(-1, batch)
    real = index < num_examples
    return np.where(real, index, np.int32(0)), real.astype(np.float32)
