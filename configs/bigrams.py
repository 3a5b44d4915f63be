"""Embeddings of tokens from the bigrams of the training text, for configs/today.py."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Self

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes import Block, Context, Scheme
from mimetic_jax.weights.checks import NOT_NEGATIVE


@dataclasses.dataclass(frozen=True)
class Bigrams(Scheme):
    """Embeddings of tokens from the bigrams of the training text, at the scale that is found.

    The rows of U √S, U S Vᵀ = log(1 + counts), each divided by its norm, times the root mean square
    norm of the embedding's rows: tokens with the same followers get the same direction. Tokens that
    nothing follows keep theirs. It reads the data: its control has the same rows in random order.

    No table of rules has the embedding: `Rule("embedding", "embedding", "t d")` is that of
    models/gpt.py. The counts are stored with the scheme, which suits vocabularies of characters.

    Attributes:
        counts: how often token j follows token i.
        shuffled: whether the rows are in random order.

    Reference: a submission to OpenAI's parameter-golf, from a summary of it.
    """

    counts: tuple[tuple[Annotated[float, NOT_NEGATIVE], ...], ...]
    shuffled: bool = False

    @classmethod
    def of(cls, tokens: np.ndarray, vocabulary: int, shuffled: bool = False) -> Self:
        """The scheme of a text, tokens [N] below V.

        >>> Bigrams.of(np.array([0, 1, 0, 1]), 2).counts
        ((0.0, 2.0), (1.0, 0.0))
        """
        pairs = np.asarray(tokens[:-1], np.int64) * vocabulary + tokens[1:]
        counts = np.bincount(pairs, minlength=vocabulary**2).reshape(vocabulary, vocabulary)
        return cls(tuple(map(tuple, counts.tolist())), shuffled)

    def validate(self) -> None:
        if {len(row) for row in self.counts} != {len(self.counts)}:
            raise InputError(f"{len(self.counts)} rows of counts are not a square")

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"embedding"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        found = block["embedding"]
        if len(found) != len(self.counts):
            raise InputError(f"counts of {len(self.counts)} tokens, but {len(found)} embeddings")
        rows = jnp.asarray(_rows(np.array(self.counts, np.float64), found.shape[1]), jnp.float32)
        scale = jnp.sqrt(jnp.mean(jnp.square(found).sum(axis=1)))
        rows = jnp.where(rows.any(axis=1, keepdims=True), scale * rows, found)
        return {"embedding": jax.random.permutation(key, rows) if self.shuffled else rows}


def _rows(counts: np.ndarray, dim: int) -> np.ndarray:
    """[V, D]; of more than V columns the last ones are zero."""
    left, singular, _ = scipy.linalg.svd(np.log1p(counts))
    left *= np.where(np.take_along_axis(left, np.abs(left).argmax(0)[None], 0) < 0, -1, 1)
    rows = (left * np.sqrt(singular))[:, :dim]
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    seen = counts.any(axis=1, keepdims=True)
    rows = np.where(seen, rows / np.where(norms > 0, norms, 1), 0)
    return np.pad(rows, ((0, 0), (0, dim - rows.shape[1])))
