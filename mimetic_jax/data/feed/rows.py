"""Windows over a text that is read in rows side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from mimetic_jax.data.feed.feed import Examples, HeldData, HeldFeed, Sums, TestSums, place
from mimetic_jax.data.feed.order import orders_of_dispatch
from mimetic_jax.data.text.tokens import Corpus, TextInfo
from mimetic_jax.data.text.windows import (
    batchify,
    eval_windows,
    train_windows,
    window,
    windows_at,
)


class TokenRows(HeldFeed):
    """A feed of the windows of a text, whose rows [B, M] to train on are sharded.

    Sums of the test text are named with "test_" in front, those of the validation text as they are.
    The last `valid` of a window's `length` targets count. A step reads the same place of each row.
    Each epoch has an order of these places, and a start of the first, of its own, drawn from the
    key; unless the windows are `shuffled`, each reads the text from its start to its end.
    """

    def __init__(
        self,
        info: TextInfo,
        batch: int,
        test_batch: int,
        length: int,
        valid: int,
        shuffled: bool,
        max_dispatch: int,
        sharding: NamedSharding,
    ) -> None:
        windows, self._spare = train_windows(info.num_train, batch, length, valid, shuffled)
        super().__init__(batch, test_batch, windows, max_dispatch, sharding)
        self.info, self.length, self.valid, self._shuffled = info, length, valid, shuffled
        narrow = info.level == "tokens" and info.vocabulary <= 2**16
        self._kind: Any = np.uint16 if narrow else np.int32

    def place(self, corpus: Corpus) -> HeldData:
        """On the CPU, ids of 16 bits in a memory map stay there."""
        put = functools.partial(place, kind=self._kind)
        tests = {}
        for prefix, tokens in (("", corpus.valid), ("test_", corpus.test)):
            windows = eval_windows(len(tokens), self.test_batch, self.length, self.valid)
            tests[prefix] = put(tokens, self._everywhere), *self._batches(*windows)
        return HeldData(put(batchify(corpus.train, self.batch), self._batched), tests)

    def shapes(self) -> jax.ShapeDtypeStruct:
        rows = self.batch, self.info.num_train // self.batch
        return jax.ShapeDtypeStruct(rows, self._kind, sharding=self._batched)

    def begin(self, arrays: jax.Array, key: jax.Array, step: jax.Array) -> Any:
        """Return orders of the windows, with the key of where the first one starts."""
        if not self._shuffled:
            return None
        windows = self.steps_per_epoch
        key, of_starts = jax.random.split(key)
        return of_starts, *orders_of_dispatch(key, step, windows, windows, self.max_dispatch)

    def examples(self, arrays: jax.Array, shared: Any, step: jax.Array) -> Examples:
        epoch, number = jnp.divmod(step, self.steps_per_epoch)
        first: jax.Array | int = 0
        if shared is not None:
            of_starts, orders, first_epoch = shared
            number = orders[epoch - first_epoch, number]
            of_epoch = jax.random.fold_in(of_starts, epoch)
            first = jax.random.randint(of_epoch, (), 0, self._spare + 1)
        return window(arrays, first + number * self.valid, self.length, self.valid)

    def test(self, test_sums: TestSums, variables: Any, data: HeldData) -> dict[str, Any]:
        sums = super().test(test_sums, variables, data)
        for name, steps in sums.items():  # a sum of hundreds of thousands of losses
            exact = np.float64 if steps.dtype == np.float32 else np.int64
            sums[name] = steps.sum(axis=0, dtype=exact)
        return sums

    def sample(self, data: HeldData, count: int) -> jax.Array:
        tokens = data.tests[""][0]
        count = max(1, min(count, len(tokens) // self.length))
        return tokens[: count * self.length].reshape(count, -1).astype(jnp.int32)

    def data_bytes(self) -> int:
        shards = self._batched.num_devices
        tokens = self.info.num_train // shards + self.info.num_valid + self.info.num_test
        return np.dtype(self._kind).itemsize * tokens

    def test_examples(self, test: jax.Array, numbers: jax.Array) -> Examples:
        """Return the windows that start at these tokens."""
        return windows_at(test, numbers, self.length)

    def over_batches(self, of_batch: Callable[..., Sums], *batches: jax.Array) -> Sums:
        """Return sums of each batch of windows, [S]."""
        return jax.lax.map(lambda batch: of_batch(*batch), batches)
