"""Copying and associative recall: what a model must have remembered to go on.

A sequence is (inputs, targets), both int32 [N]: the model reads inputs 0 … n and gives target n,
where one is asked for; −1 is not asked. Each set is tested at the length that it is trained at and
at multiples of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Annotated, TypeAlias

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range, check_fields

VOCABULARY = Range(3, 2**20)
LENGTH = Range(2, 10**5)
PAIRS = Range(1, 10**5)
TIMES = Range(1, 64)
NUM_TEST = Range(1, 10**6)

Sequence: TypeAlias = tuple[jax.Array, jax.Array]


@dataclasses.dataclass(frozen=True)
class _Sequences:
    """What the sets have in common: the number of tokens V that are drawn, and what is tested.

    Multiples of the length to test at always have 1 among them.
    """

    vocabulary: Annotated[int, VOCABULARY] = 16
    test_at: Annotated[tuple[int, ...], TIMES] = (1, 2, 4)
    num_test: Annotated[int, NUM_TEST] = 256

    def __post_init__(self) -> None:
        check_fields(self)

    def fingerprint(self) -> str:
        """Differs if sequences do."""
        return hashlib.md5(repr(self).encode(), usedforsecurity=False).hexdigest()

    @property
    def times(self) -> tuple[int, ...]:
        """The multiples of the length, the trained one first."""
        return tuple(sorted({1, *self.test_at}))

    @property
    def tokens(self) -> int:
        """Tokens that the model knows."""
        return self.vocabulary

    def inputs(self, times: int = 1) -> int:
        """N at a multiple of the length."""
        raise NotImplementedError

    def example(self, key: jax.Array, times: int = 1) -> Sequence:
        """A sequence at a multiple of the length."""
        raise NotImplementedError

    def _tested(self) -> str:
        lengths = ", ".join(f"{self.inputs(times):,}" for times in self.times)
        return f"{self.num_test:,} test sequences of {lengths} tokens"


@dataclasses.dataclass(frozen=True)
class Copying(_Sequences):
    """`$ s | s .`: after the separator the string of `length` tokens comes again, then the end.

    Tokens V, V + 1 and V + 2 are $, | and the end.

    >>> inputs, targets = Copying(vocabulary=4, length=3).example(jax.random.key(0))
    >>> inputs.tolist(), targets.tolist()
    ([4, 1, 0, 0, 5, 1, 0, 0], [-1, -1, -1, -1, 1, 0, 0, 6])

    Reference: Repeat After Me: Transformers are Better than State Space Models at Copying (Jelassi
    et al. 2024), section 4.
    """

    length: Annotated[int, LENGTH] = 16

    def __str__(self) -> str:
        return f"copying {self.length} of {self.vocabulary} tokens; {self._tested()}"

    @property
    def tokens(self) -> int:
        return self.vocabulary + 3

    def inputs(self, times: int = 1) -> int:
        return 2 * times * self.length + 2

    def example(self, key: jax.Array, times: int = 1) -> Sequence:
        string = jax.random.randint(key, (times * self.length,), 0, self.vocabulary, jnp.int32)
        begin, separator, end = (jnp.full(1, self.vocabulary + i, jnp.int32) for i in range(3))
        whole = jnp.concatenate([begin, string, separator, string, end])
        return _asked(whole, jnp.arange(len(whole) - 1) > times * self.length)


@dataclasses.dataclass(frozen=True)
class Associative(_Sequences):
    """`k v k v … k v`: pairs of keys and values, then some of the keys again, each with its value.

    Half of the vocabulary are keys, the other half values. Keys differ; values are independent.
    Multiples of the length have as many times more pairs and queries.

    >>> sequences = Associative(vocabulary=8, pairs=2, queries=1, test_at=())
    >>> inputs, targets = sequences.example(jax.random.key(1))
    >>> inputs.tolist(), targets.tolist()
    ([1, 4, 2, 4, 2], [-1, -1, -1, -1, 4])

    Reference: Zoology: Measuring and Improving Recall in Efficient Language Models (Arora et al.
    2023), multi-query associative recall; its queries are further apart.
    """

    vocabulary: Annotated[int, VOCABULARY] = 64
    pairs: Annotated[int, PAIRS] = 8
    queries: Annotated[int, PAIRS] = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        keys, pairs = self.vocabulary // 2, self.times[-1] * self.pairs
        if pairs > keys:
            raise InputError(
                f"{self.times[-1]} x pairs {self.pairs} are more than the {keys} keys of "
                f"vocabulary {self.vocabulary}"
            )
        if self.queries > self.pairs:
            raise InputError(f"queries {self.queries} are more than pairs {self.pairs}")

    def __str__(self) -> str:
        return (
            f"associative recall, {self.queries} queries of {self.pairs} pairs of "
            f"{self.vocabulary} tokens; {self._tested()}"
        )

    def inputs(self, times: int = 1) -> int:
        return 2 * times * (self.pairs + self.queries) - 1

    def example(self, key: jax.Array, times: int = 1) -> Sequence:
        key_key, value_key, query_key = jax.random.split(key, 3)
        pairs, half = times * self.pairs, self.vocabulary // 2
        keys = jax.random.permutation(key_key, jnp.arange(half, dtype=jnp.int32))[:pairs]
        values = half + jax.random.randint(value_key, (pairs,), 0, half, jnp.int32)
        shown = jnp.stack([keys, values], axis=1)
        asked = jax.random.permutation(query_key, pairs)[: times * self.queries]
        whole = jnp.concatenate([shown, shown[asked]]).ravel()
        at = jnp.arange(len(whole) - 1)
        return _asked(whole, (at >= 2 * pairs) & (at % 2 == 0))


SETS: Mapping[str, type[_Sequences]] = {"copying": Copying, "associative": Associative}
"""The sets by name."""


def _asked(whole: jax.Array, asked: jax.Array) -> Sequence:
    """Inputs, and what follows each where it is asked for."""
    return whole[:-1], jnp.where(asked, whole[1:], -1)
