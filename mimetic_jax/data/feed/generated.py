"""Examples that a rule draws from a key, inside the step: no data is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from mimetic_jax.data.feed.feed import (
    Count,
    Examples,
    Session,
    Shapes,
    Sums,
    Unchanging,
    place,
    shaped,
    zeros_like,
)
from mimetic_jax.data.feed.order import padded_batches

Draw: TypeAlias = Callable[[jax.Array], Examples]
"""A key → one example, without a batch axis."""

_TEST_SEED = 0


class Generated:
    """A feed of examples that are functions of (key, step, row).

    The test set is a fixed number of examples from a key of its own, the same in every run.

    Args:
        draw: the rule.
        batch: B, examples per step.
        num_test: examples of the test set.
        test_batch: examples per batch of it.
        steps_per_epoch: what counts as an epoch; no example comes again in the next.
        max_dispatch: steps per dispatch, at most.
        sharding: of a batch over the mesh.
    """

    resident: ClassVar[bool] = True

    def __init__(
        self,
        draw: Draw,
        batch: int,
        num_test: int,
        test_batch: int,
        steps_per_epoch: int,
        max_dispatch: int,
        sharding: NamedSharding,
    ) -> None:
        self._draw, self.batch = draw, batch
        self.num_test, self.test_batch = num_test, test_batch
        self.steps_per_epoch, self.max_dispatch = steps_per_epoch, max_dispatch
        self._batched = sharding
        everywhere = NamedSharding(sharding.mesh, P())
        self._count = jax.jit(self._sum, static_argnums=0, out_shardings=everywhere)

    def place(self, dataset: Any) -> tuple[jax.Array, jax.Array]:
        """Indices [S, B] of the test examples and their weights, 0 for padding."""
        sharded = NamedSharding(self._batched.mesh, P(None, *self._batched.spec))
        indices, weights = padded_batches(self.num_test, self.test_batch)
        return place(indices, sharded), place(weights, sharded)

    def session(self, data: Any, key: jax.Array, first_step: int, steps: int) -> Session:
        return Unchanging(())

    def shapes(self) -> Shapes:
        indices = shaped((self.test_batch,), jnp.int32, self._batched)
        examples = jax.tree.map(
            lambda x: shaped(x.shape, x.dtype, self._batched),
            jax.eval_shape(self._drawn, jax.random.key(_TEST_SEED), indices),
        )
        return Shapes((), examples, shaped((self.test_batch,), jnp.float32, self._batched))

    def begin(self, arrays: tuple[()], key: jax.Array, step: jax.Array) -> jax.Array:
        return key

    def examples(self, arrays: tuple[()], shared: jax.Array, step: jax.Array) -> Examples:
        return self._drawn(jax.random.fold_in(shared, step), jnp.arange(self.batch))

    def test(self, count: Count, variables: Any, data: tuple[jax.Array, jax.Array]) -> Any:
        return jax.device_get(self._count(count, variables, *data))

    def sample(self, data: tuple[jax.Array, jax.Array], count: int = 1) -> jax.Array:
        return self._drawn(jax.random.key(_TEST_SEED), jnp.arange(count))[0]

    def describe_step(self, data: Any, key: jax.Array, step: int) -> str:
        """Nothing: the step's number says it all."""
        return ""

    def data_bytes(self) -> int:
        return 0

    def _drawn(self, key: jax.Array, rows: jax.Array) -> Examples:
        keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)
        return jax.vmap(self._draw)(keys)

    def _sum(self, count: Count, variables: Any, indices: jax.Array, weights: jax.Array) -> Sums:
        key = jax.random.key(_TEST_SEED)

        def batch_sums(batch: tuple[jax.Array, jax.Array]) -> Sums:
            return count(variables, self._drawn(key, batch[0]), batch[1])

        def add(total: Sums, batch: tuple[jax.Array, jax.Array]) -> tuple[Sums, None]:
            return jax.tree.map(jnp.add, total, batch_sums(batch)), None

        nothing = zeros_like(batch_sums, (indices[0], weights[0]))
        return jax.lax.scan(add, nothing, (indices, weights))[0]
