"""Schemes for the embedding of tokens."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax import weights
from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes.base import Scheme
from mimetic_jax.schemes.block import Block, Context
from mimetic_jax.weights.checks import NOT_NEGATIVE


@dataclasses.dataclass(frozen=True)
class Bigrams(Scheme):
    """Embeddings of tokens from the bigrams of the training text, at the scale that is found.

    The rows of `weights.bigram_embedding`, times the root mean square norm of the embedding's rows.
    Tokens that nothing follows keep theirs. It reads the data: its control has the same rows in
    random order.

    No table of rules has the embedding: `Rule("embedding", "embedding", "t d")` is that of
    models/gpt.py. The counts are stored with the scheme, which suits vocabularies of characters.

    Attributes:
        counts: how often token j follows token i, from `weights.bigram_counts`.
        shuffled: whether the rows are in random order.

    Example:
        >>> sorted(Bigrams(((0, 2), (1, 0))).writes(frozenset({"embedding", "position"})))
        ['embedding']

    Reference: a submission to OpenAI's parameter-golf, from a summary of it.
    """

    counts: tuple[tuple[Annotated[float, NOT_NEGATIVE], ...], ...]
    shuffled: bool = False

    def validate(self) -> None:
        if {len(row) for row in self.counts} != {len(self.counts)}:
            raise InputError(f"{len(self.counts)} rows of counts are not a square")

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"embedding"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        found = block["embedding"]
        if len(found) != len(self.counts):
            raise InputError(f"counts of {len(self.counts)} tokens, but {len(found)} embeddings")
        rows = weights.bigram_embedding(np.array(self.counts), found.shape[1])
        scale = jnp.sqrt(jnp.mean(jnp.square(found).sum(axis=1)))
        rows = jnp.where(rows.any(axis=1, keepdims=True), scale * rows, found)
        return {"embedding": jax.random.permutation(key, rows) if self.shuffled else rows}
