"""Examples that a rule draws from a key, inside the step: no data is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from mimetic_jax.data.feed.feed import Examples, HeldData, HeldFeed
from mimetic_jax.data.feed.order import padded_batches

Draw: TypeAlias = Callable[[jax.Array], Examples]
"""A key → one example, without a batch axis."""

_TEST_SEED = 0


class Generated(HeldFeed):
    """A feed of examples that are functions of (key, step, row).

    A test set, by the prefix of its sums, is `num_test` examples from a key of its own, the same in
    every run. The rule of "" is that of training, too, where no example comes again.
    """

    def __init__(
        self,
        draws: Mapping[str, Draw],
        batch: int,
        num_test: int,
        test_batch: int,
        steps_per_epoch: int,
        max_dispatch: int,
        sharding: NamedSharding,
    ) -> None:
        super().__init__(batch, test_batch, steps_per_epoch, max_dispatch, sharding)
        self._draws, self.num_test = draws, num_test

    def place(self, dataset: Any) -> HeldData:
        batches = self._batches(*padded_batches(self.num_test, self.test_batch))
        return HeldData((), dict.fromkeys(self._draws, ((), *batches)))

    def shapes(self) -> tuple[()]:
        return ()

    def begin(self, arrays: tuple[()], key: jax.Array, step: jax.Array) -> jax.Array:
        return key

    def examples(self, arrays: tuple[()], shared: jax.Array, step: jax.Array) -> Examples:
        return _drawn(self._draws[""], jax.random.fold_in(shared, step), jnp.arange(self.batch))

    def test_examples(self, prefix: str, test: tuple[()], numbers: jax.Array) -> Examples:
        return _drawn(self._draws[prefix], jax.random.key(_TEST_SEED), numbers)

    def sample(self, data: HeldData, count: int = 1) -> jax.Array:
        return self.test_examples("", (), jnp.arange(count))[0]


def _drawn(draw: Draw, key: jax.Array, rows: jax.Array) -> Examples:
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)
    return jax.vmap(draw)(keys)
