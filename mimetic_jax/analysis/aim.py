"""Where attention looks: how many rows at their target, with what weight, at how many tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.special

from mimetic_jax.weights.factor import Array


class Aim(NamedTuple):
    """How well attention maps meet their targets.

    Attributes:
        hits: the share of rows whose largest weight is at their target, among rows that have one.
        weight: the mean weight at the target, of the same rows.
        tokens: how many tokens a row attends to, exp of its entropy, on average of all rows.
    """

    hits: float
    weight: float
    tokens: float


def aim(maps: Array, targets: Array) -> Aim:
    """Compare attention maps [..., N, M] with their targets, 1 at most once in a row, else 0.

    >>> uniform = np.full((1, 4, 4), 0.25)
    >>> aim(uniform, np.eye(4)[None])
    Aim(hits=0.25, weight=0.25, tokens=4.0)
    """
    maps, targets = np.broadcast_arrays(np.asarray(maps, np.float64), np.asarray(targets))
    rows = targets.sum(axis=-1) > 0
    hits = maps.argmax(axis=-1) == targets.argmax(axis=-1)
    entropies = scipy.special.entr(maps).sum(axis=-1)
    return Aim(
        float(hits[rows].mean()),
        float((maps * targets).sum(axis=-1)[rows].mean()),
        float(np.exp(entropies).mean()),
    )


def attention_maps(query: Array, key: Array, tokens: Array) -> Array:
    """softmax(X Q Kᵀ Xᵀ / √K) for query [D, H, K], key [D, G, K] and tokens [N, D]: [H, N, N]."""
    tokens = np.asarray(tokens, np.float64)
    queries, keys = (
        np.einsum("nd,dhk->hnk", tokens, np.asarray(kernel, np.float64)) for kernel in (query, key)
    )
    keys = np.repeat(keys, len(queries) // len(keys), axis=0)
    logits = queries @ keys.swapaxes(1, 2) / np.sqrt(query.shape[-1])
    found: Array = scipy.special.softmax(logits, axis=-1)
    return found
