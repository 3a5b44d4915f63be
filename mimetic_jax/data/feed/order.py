"""Which example lies in which row of which step, as a pure function of (seed, step, row).

The numbers are Philox's, keyed by (seed, use) and counted from (epoch) or (step, row): a published
counter-based generator whose stream NumPy keeps, so that an order outlives a version of NumPy.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from mimetic_jax.errors import InputError

_ORDER, _CROP = 0, 1


@functools.lru_cache(maxsize=2)
def epoch_order(num_examples: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of the examples: the ranks of N Philox numbers.

    Args:
        num_examples: N.
        seed: of the data order, at least 0.
        epoch: counted from 0.

    Returns:
        int32 [N], read-only.
    """
    numbers = np.random.Philox(key=[seed, _ORDER], counter=[0, epoch, 0, 0])
    order = np.argsort(numbers.random_raw(num_examples), kind="stable").astype(np.int32)
    order.setflags(write=False)
    return order


def example_rng(seed: int, step: int, row: int) -> np.random.Generator:
    """The generator of the random crop in one row of one step's global batch."""
    return np.random.Generator(np.random.Philox(key=[seed, _CROP], counter=[0, row, step, 0]))


@dataclasses.dataclass(frozen=True)
class TrainOrder:
    """The global batches of training.

    An epoch is N // batch steps. With `repeats` r each image of the epoch's order comes r times in
    a row, the sequence is cut at the same N // batch steps (so an epoch sees about N / r images),
    and within a batch copies lie about batch / r rows apart, so that processes share them out.

    >>> order = TrainOrder(num_examples=5, batch=2, repeats=1, seed=0)
    >>> order.steps_per_epoch, len(set(order.batch_indices(0)) | set(order.batch_indices(1)))
    (2, 4)

    Args:
        num_examples: N.
        batch: rows in a global batch, of all processes together.
        repeats: r, 1 for none.
        seed: of the data order.

    Raises:
        InputError: a batch below 1 or above N, repeats below 1, or a seed below 0.

    Reference:
        Hoffer et al. 2020, "Augment your batch"; RASampler in facebookresearch/deit.
    """

    num_examples: int
    batch: int
    repeats: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= self.num_examples:
            raise InputError(
                f"batch {self.batch} isn't between 1 and the {self.num_examples} training examples"
            )
        if self.repeats < 1:
            raise InputError(f"repeats {self.repeats} isn't at least 1")
        if not 0 <= self.seed < 2**64:
            raise InputError(f"seed {self.seed} isn't between 0 and 2**64 - 1")

    @property
    def steps_per_epoch(self) -> int:
        return self.num_examples // self.batch

    def batch_indices(self, step: int) -> np.ndarray:
        """The examples of one step: int32 [batch]."""
        epoch, position = divmod(step, self.steps_per_epoch)
        order = epoch_order(self.num_examples, self.seed, epoch)
        return order[(position * self.batch + self._spread) // self.repeats]

    def index(self, step: int, row: int) -> int:
        """The example in one row of one step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        order = epoch_order(self.num_examples, self.seed, epoch)
        return int(order[(position * self.batch + int(self._spread[row])) // self.repeats])

    @functools.cached_property
    def _spread(self) -> np.ndarray:
        return np.argsort(np.arange(self.batch) % self.repeats, kind="stable")
