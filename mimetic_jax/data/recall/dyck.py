"""Words of brackets that open and close in order: a k-Dyck language, drawn inside the step.

With k kinds of brackets, token t < k opens a bracket of kind t and token k + t closes it. Token 2k
is the mask.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp

from mimetic_jax.data.recall.sequences import NUM_TEST, Drawn
from mimetic_jax.typed import SHARE, Range

PAIRS = Range(1, 2**20)  # a vocabulary of twice as many
DEPTH = Range(1, 10**6)  # of a stack per word


@dataclasses.dataclass(frozen=True)
class Dyck(Drawn):
    """A distribution of masked words.

    Args:
        length: N, tokens per word.
        pairs: k, kinds of brackets.
        open_probability: p, of opening a bracket where both are allowed.
        max_depth: largest number of open brackets.
        mask_probability: share of the closing brackets that are masked.
        num_test: words to test on.

    Raises:
        InputError: a number is out of range.

    Example:
        >>> print(Dyck(length=16))
        dyck, words of 16 tokens, 64 kinds of brackets, depth at most 4; 1,024 test words
    """

    length: Annotated[int, Range(2, 10**6)]
    pairs: Annotated[int, PAIRS] = 64
    open_probability: Annotated[float, SHARE] = 0.6
    max_depth: Annotated[int, DEPTH] = 4
    mask_probability: Annotated[float, SHARE] = 0.5
    num_test: Annotated[int, NUM_TEST] = 1024

    def __str__(self) -> str:
        return (
            f"dyck, words of {self.length:,} tokens, {self.pairs} kinds of brackets, depth at most "
            f"{self.max_depth}; {self.num_test:,} test words"
        )

    @property
    def vocabulary(self) -> int:
        """Number of brackets, 2k; the mask comes on top."""
        return 2 * self.pairs

    def example(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A word: as the model sees it, and as it is, both int32 [N].

        The model can restore what is masked, as the brackets that are open decide what closes; what
        opens is random and stays.

        >>> seen, word = Dyck(length=4, pairs=3, mask_probability=1.0).example(jax.random.key(0))
        >>> seen.tolist(), word.tolist()
        ([0, 2, 6, 6], [0, 2, 5, 3])
        """
        word_key, mask_key = jax.random.split(key)
        tokens = dyck(word_key, self.length, self.pairs, self.open_probability, self.max_depth)
        closing = tokens >= self.pairs
        hidden = jax.random.bernoulli(mask_key, self.mask_probability, tokens.shape) & closing
        return jnp.where(hidden, self.vocabulary, tokens), tokens


def dyck(
    key: jax.Array, length: int, pairs: int, open_probability: float = 0.6, max_depth: int = 4
) -> jax.Array:
    """A word of balanced brackets, from left to right with a stack of those that are open.

    With no bracket open, or with probability p while fewer than `max_depth` are, the next token
    opens one of a uniform kind; else it closes the last. Once as many are open as tokens are left,
    all are closed. A word of odd length is one of the next even length without its last token.

    Args:
        key: a `jax.random` key.
        length: N, static.
        pairs: k, kinds of brackets.
        open_probability: p.
        max_depth: largest number of open brackets, static.

    Returns:
        int32 [N]: t in [0, k) opens a bracket of kind t, k + t closes it.

    Example:
        >>> dyck(jax.random.key(0), 8, pairs=3).tolist()
        [1, 2, 1, 1, 4, 4, 5, 4]

    Reference: Procedural Warm-Up for Vision Transformers (Shinnick et al. 2026), k-Dyck.
    """
    even = length + length % 2
    kind_key, open_key = jax.random.split(key)
    kinds = jax.random.randint(kind_key, (even,), 0, pairs, jnp.int32)
    wishes = jax.random.bernoulli(open_key, open_probability, (even,))

    def step(
        state: tuple[jax.Array, jax.Array], drawn: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        stack, depth = state
        left, kind, wish = drawn
        opens = (depth < left) & ((depth == 0) | (wish & (depth < max_depth)))
        token = jnp.where(opens, kind, pairs + stack[depth - 1])
        # What stands above the top is never read: the kind is written whether it opens or not.
        stack = stack.at[depth].set(kind, mode="drop")
        return (stack, depth + jnp.where(opens, 1, -1)), token

    empty = jnp.zeros(max_depth, jnp.int32), jnp.int32(0)
    return jax.lax.scan(step, empty, (even - jnp.arange(even), kinds, wishes))[1][:length]
