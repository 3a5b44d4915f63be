"""Products of attention kernels in float64; heads of a group share its key and its value."""

from typing import Any

import numpy as np


def query_key(query: Any, key: Any) -> np.ndarray:
    """W_Q W_Kᵀ by head, [H, D, D]."""
    query, key = (np.asarray(kernel, np.float64) for kernel in (query, key))
    return np.einsum("dhk,ehk->hde", query, key.repeat(query.shape[1] // key.shape[1], axis=1))


def value_out(value: Any, out: Any) -> np.ndarray:
    """The part of each head in W_V W_out, [H, D, D]."""
    value, out = (np.asarray(kernel, np.float64) for kernel in (value, out))
    return np.einsum("dhk,hke->hde", value.repeat(len(out) // value.shape[1], axis=1), out)


def cosine(product: np.ndarray) -> float:
    """The cosine of a product [D, D] with the identity."""
    return float(np.trace(product) / (np.linalg.norm(product) * np.sqrt(len(product))))


def of_layer(layer: Any) -> tuple[np.ndarray, np.ndarray]:
    """W_Q W_Kᵀ by head [H, D, D], and W_V W_out [D, D], of a layer's parameters."""
    query, key, value, out = (layer[role]["kernel"] for role in ("query", "key", "value", "out"))
    return query_key(query, key), value_out(value, out).sum(axis=0)
