"""The factors of the products of each attention layer: W_Q W_Kᵀ by head, and W_V W_out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from mimetic_jax.errors import InputError, blaming
from mimetic_jax.rewrite import blocks
from mimetic_jax.rules import Rule
from mimetic_jax.schemes import Block
from mimetic_jax.schemes.base import attention_kernels
from mimetic_jax.schemes.mimetic import pair_sizes


@dataclasses.dataclass(frozen=True)
class Layer:
    """The location of an attention layer in a tree.

    Attributes:
        path: of the layer.
        index: of the layer in a block that stacks its layers, else None.
    """

    path: str
    index: int | None

    @property
    def name(self) -> str:
        """The path, with the index of a stacked layer.

        >>> Layer("blocks/attention", 3).name
        'blocks/attention[3]'
        """
        return self.path if self.index is None else f"{self.path}[{self.index}]"


@dataclasses.dataclass(frozen=True)
class Pair:
    """The factors of products left_h right_hᵀ.

    Attributes:
        left, right: [H, D, K] in float64.
        draws: how many of the factors differ where heads share one.
    """

    left: np.ndarray
    right: np.ndarray
    draws: int

    def check_finite(self) -> None:
        """Raise InputError for factors with a NaN or an infinity."""
        if not (np.isfinite(self.left).all() and np.isfinite(self.right).all()):
            raise InputError("its weights are not finite")


@dataclasses.dataclass(frozen=True)
class LayerPairs(Layer):
    """The pairs of a layer; None where it doesn't have both kernels.

    Attributes:
        query_key: W_Q and W_K of each head.
        value_out: W_V and W_outᵀ of all heads as one product of rank H K (H = 1 in `Pair`).
    """

    query_key: Pair | None
    value_out: Pair | None


def attention_pairs(
    params: Any,
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] | None = None,
) -> Iterator[LayerPairs]:
    """The pairs of every attention layer that has one.

    Args:
        params: a parameter tree; layers may be stacked, kernels fused, heads grouped.
        num_heads: H, where kernels store heads flattened.
        num_kv_heads: G, likewise; H unless given.
        rules: what leaves are; unless given, stock Flax names or the table of `zoo` that fits.

    Yields:
        A `LayerPairs` per layer, sorted by path.

    Raises:
        InputError: as `blocks`; or if a product isn't square.

    Example:
        >>> kernels = {"query": (8, 2, 4), "key": (8, 1, 4)}
        >>> params = {name: {"kernel": np.ones(shape)} for name, shape in kernels.items()}
        >>> pair = next(attention_pairs({"attention": params})).query_key
        >>> pair.left.shape, pair.right.shape, pair.draws
        ((2, 8, 4), (2, 8, 4), 1)
    """
    views = blocks(params, num_heads=num_heads, num_kv_heads=num_kv_heads, rules=rules)
    for path, index, block in views:
        kernels = attention_kernels(frozenset(block))
        with blaming(path):
            query_key = _query_key(block) if {"query", "key"} <= kernels else None
            value_out = _value_out(block) if {"value", "out"} <= kernels else None
        if query_key or value_out:
            yield LayerPairs(path, index, query_key, value_out)


def values(block: Block, role: str) -> np.ndarray:
    """The array of a role in float64.

    Raises:
        InputError: it is traced.
    """
    array = block[role]
    if isinstance(array, jax.core.Tracer):
        raise InputError(f"{role} has no values yet: read them outside of jit, vmap and grad")
    return np.asarray(array, float)


def _query_key(block: Block) -> Pair:
    sizes = pair_sizes(block, "query", "key")
    query_DxHxK, key_DxGxK = (values(block, role) for role in ("query", "key"))
    key_DxHxK = key_DxGxK.repeat(sizes["num_heads"] // sizes["num_kv_heads"], axis=1)
    return Pair(query_DxHxK.swapaxes(0, 1), key_DxHxK.swapaxes(0, 1), sizes["num_kv_heads"])


def _value_out(block: Block) -> Pair:
    sizes = pair_sizes(block, "out", "value")
    dim, groups, width = sizes["dim"], sizes["num_kv_heads"], sizes["head_dim"]
    value_DxGxK, out_HxKxD = (values(block, role) for role in ("value", "out"))
    # Query heads of a group read the same value.
    out_GxKxD = out_HxKxD.reshape(groups, -1, width, dim).sum(axis=1)
    return Pair(value_DxGxK.reshape(1, dim, -1), out_GxKxD.reshape(1, -1, dim).swapaxes(1, 2), 1)
