"""Embeddings of tokens whose geometry is that of their neighbors in a text."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from mimetic_jax.base.errors import InputError
from mimetic_jax.weights.checks import check_room, counts


def bigram_counts(tokens: np.ndarray, vocabulary: int) -> np.ndarray:
    """How often token j follows token i in a text: [V, V] int64.

    Args:
        tokens: of the training text, integers below `vocabulary`.
        vocabulary: V.

    Example:
        >>> bigram_counts(np.array([0, 1, 0, 1]), 2)
        array([[0, 2],
               [1, 0]])
    """
    (vocabulary,) = counts(vocabulary=vocabulary)
    pairs = np.asarray(tokens[:-1], np.int64) * vocabulary + tokens[1:]
    return np.bincount(pairs, minlength=vocabulary**2).reshape(vocabulary, vocabulary)


def bigram_embedding(bigrams: np.ndarray, dim: int) -> jax.Array:
    """Rows of U √S, U S Vᵀ = log(1 + counts), each divided by its norm.

    Tokens with the same followers get the same direction. A token that nothing follows gets zeros.

    Args:
        bigrams: counts [V, V] of `bigram_counts`.
        dim: D; of more than V columns the last ones are zero.

    Returns:
        [V, D] float32.

    Raises:
        InputError: the counts are not a square matrix of numbers ≥ 0.

    Example:
        >>> bigram_embedding(np.array([[0, 2], [1, 0]]), 3).round(2) + 0
        Array([[1., 0., 0.],
               [0., 1., 0.]], dtype=float32)
    """
    bigrams, (dim,) = np.asarray(bigrams, np.float64), counts(dim=dim)
    if bigrams.ndim != 2 or len(set(bigrams.shape)) != 1 or not (bigrams >= 0).all():
        raise InputError(f"counts of shape {bigrams.shape} are not [V, V] numbers of at least 0")
    check_room(*4 * [(2, *bigrams.shape)], (len(bigrams), dim))
    left, singular, _ = scipy.linalg.svd(np.log1p(bigrams))
    left *= np.where(np.take_along_axis(left, np.abs(left).argmax(0)[None], 0) < 0, -1, 1)
    rows = (left * np.sqrt(singular))[:, :dim]
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    seen = bigrams.any(axis=1, keepdims=True)
    rows = np.where(seen, rows / np.where(norms > 0, norms, 1), 0)
    return jnp.asarray(np.pad(rows, ((0, 0), (0, dim - rows.shape[1]))), jnp.float32)
