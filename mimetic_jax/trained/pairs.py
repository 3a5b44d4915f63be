"""The factors of each layer's products: W_Q W_Kᵀ by head, W_V W_out, and W_1 W_2 of the MLP.

A block computes x + λ ∘ f(γ ∘ x̂), where x̂ is normalized: to the activations the products are
diag(γ) W_Q W_Kᵀ diag(γ), diag(γ) W_V W_out diag(λ) and diag(γ) W_1 W_2 diag(λ). Trained gains and
scales have signs and sizes of their own, which hide the structure of the kernels alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import jax
import numpy as np

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.rules import paths
from mimetic_jax.schemes import Block
from mimetic_jax.schemes.mimetic import pair_sizes
from mimetic_jax.tree.around import vectors
from mimetic_jax.tree.layers import KERNELS, PRODUCTS, View, paired
from mimetic_jax.tree.tree import Tree


@dataclasses.dataclass(frozen=True)
class Layer:
    """The location of an attention layer, or of an MLP without attention beside it, in a tree.

    The index is that in a block that stacks its layers, else None.
    """

    path: str
    index: int | None

    @property
    def name(self) -> str:
        """The path, with the index of a stacked layer."""
        return paths.of_layer(self.path, self.index)


@dataclasses.dataclass(frozen=True)
class Pair:
    """The factors of products left_h right_hᵀ, [H, D, K] each in float64.

    If heads share a factor, `draws` says how many of them differ.
    """

    left: np.ndarray
    right: np.ndarray
    draws: int

    def check_finite(self) -> None:
        """Raise InputError for a NaN or an infinity."""
        if not (np.isfinite(self.left).all() and np.isfinite(self.right).all()):
            raise InputError("its weights are not finite")

    def scaled(self, left: np.ndarray | None, right: np.ndarray | None) -> Pair:
        """Multiply the D rows of the factors by [D] numbers; None leaves a factor as it is."""
        scaled_left, scaled_right = (
            factor if numbers is None else factor * numbers[:, None]
            for factor, numbers in ((self.left, left), (self.right, right))
        )
        return Pair(scaled_left, scaled_right, self.draws)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerNorms(Layer):
    """What multiplies the products of a layer.

    Attributes:
        folded: the roles of the gains and scales that the products were multiplied by.
        negative: the share of the gains' entries that are not above 0.
        post_norm: whether norms of the layer come after the sum with its input.
        unknown: paths of the arrays [D] in the layer, such as gains, that no rule describes.
    """

    folded: frozenset[str] = frozenset()
    negative: float = 0.0
    post_norm: bool = False
    unknown: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerPairs(LayerNorms):
    """The pairs of a layer; None if it doesn't have both kernels.

    Attributes:
        query_key: W_Q and W_K of each head.
        value_out: W_V and W_outᵀ of all heads as one product of rank H K (H = 1 in `Pair`).
        by_head: W_V and W_outᵀ of each head.
        mlp: W_1 and W_2ᵀ of the MLP beside the attention (H = 1, K = F); up and downᵀ of a gated
            one.
        gated: whether the MLP is gated.
        biases: those of query and of key, [H, K] each, if there are both.
        shifted: what the bias β of the norm before adds to both, β W_Q and β W_K, likewise.
        gains: those of norms over the columns of queries and keys, [K] each or None.
    """

    query_key: Pair | None = None
    value_out: Pair | None = None
    by_head: Pair | None = None
    mlp: Pair | None = None
    gated: bool = False
    biases: tuple[np.ndarray, np.ndarray] | None = None
    shifted: tuple[np.ndarray, np.ndarray] | None = None
    gains: tuple[np.ndarray | None, np.ndarray | None] = (None, None)

    @property
    def pairs(self) -> dict[str, Pair]:
        """The pairs that the layer has, by name."""
        pairs = {name: getattr(self, name) for name in ("query_key", "value_out", "by_head", "mlp")}
        return {name: pair for name, pair in pairs.items() if pair is not None}


def layer_pairs(tree: Tree, every: Iterable[View], *, effective: bool) -> Iterator[LayerPairs]:
    """Yield the pairs of every layer that has one, sorted by path; each is read when it is asked
    for.

    If `effective`, factors are multiplied by the gain of the norm before the layer and the scale
    after it, if the tree's rules know them.

    >>> kernels = {"query": (8, 2, 4), "key": (8, 1, 4)}
    >>> params = {name: {"kernel": np.ones(shape)} for name, shape in kernels.items()}
    >>> from mimetic_jax.tree.label import label
    >>> from mimetic_jax.tree.layers import views
    >>> tree = label({"attention": params})
    >>> (layer,) = layer_pairs(tree, views(tree), effective=True)
    >>> layer.query_key.left.shape, layer.query_key.right.shape, layer.query_key.draws
    ((2, 8, 4), (2, 8, 4), 1)
    """
    for parts in paired(every):
        yield _read(tree, parts, effective)


def _read(tree: Tree, parts: Mapping[str, View], effective: bool) -> LayerPairs:
    scaled: dict[str, Pair] = {}
    around: dict[str, np.ndarray] = {}  # gains and scales
    beside: dict[str, bool] = {}
    gated, biases, shifted = False, None, None
    of_columns: tuple[np.ndarray | None, np.ndarray | None] = (None, None)
    for kind, (path, index, block) in parts.items():
        with blaming(path):
            pairs = {
                name: _pair(name, block)
                for name in PRODUCTS[kind]
                if block.keys() >= set(KERNELS[name])
            }
            widths = {pair.left.shape[1] for pair in pairs.values()}
            around |= _scales(kind, block, widths) if effective else {}
        before, after = around.get(f"{kind}_gain"), around.get(f"{kind}_scale")
        for name, pair in pairs.items():
            scaled[name] = pair.scaled(before, before if name == "query_key" else after)
        gated |= "mlp_gate" in block
        if "query_key" in pairs:
            query, key = (
                values(block, role) if role in block else None
                for role in ("query_gain", "key_gain")
            )
            of_columns = query, key
            if effective and "attention_shift" in block:
                shift, pair = values(block, "attention_shift"), pairs["query_key"]
                first, second = (np.einsum("d,hdk->hk", shift, x) for x in (pair.left, pair.right))
                shifted = first, second
        if {"query", "query_bias", "key_bias"} <= block.keys():
            query, key = (values(block, f"{role}_bias") for role in ("query", "key"))
            biases = query, key.repeat(len(query) // len(key), axis=0)
        beside |= vectors(tree, path, index, min(widths)) if effective else {}
    if "by_head" in scaled:
        scaled["value_out"] = _sum(scaled["by_head"])
    gains = [array for role, array in around.items() if role.endswith("_gain")]
    path, index, _ = next(iter(parts.values()))  # of the attention, if there is one
    return LayerPairs(
        path,
        index,
        **scaled,
        gated=gated,
        biases=biases,
        shifted=shifted,
        gains=of_columns,
        folded=frozenset(around),
        negative=float((np.concatenate(gains) <= 0).mean()) if gains else 0.0,
        post_norm=any(beside.values()),
        unknown=tuple(path for path, after in beside.items() if not after),
    )


def _scales(kind: str, block: Block, widths: set[int]) -> dict[str, np.ndarray]:
    """The gain and the scale of a layer, by role."""
    known: dict[str, np.ndarray] = {}
    for role in (f"{kind}_gain", f"{kind}_scale"):
        if role in block:
            known[role] = values(block, role)
            if {*known[role].shape} != widths:
                shape, width = known[role].shape, min(widths)
                raise InputError(f"its {role} has shape {shape}, but its products width {width}")
    if f"{kind}_gain" in known and not known[f"{kind}_gain"].any():
        raise InputError(
            f"its {kind}_gain is 0 everywhere: if the model adds 1 to it, pass rules with "
            "form='1 + w', such as zoo.GEMMA_1"
        )
    return known


def values(block: Block, role: str) -> np.ndarray:
    """Return the array of a role in float64."""
    array = block[role]
    if isinstance(array, jax.core.Tracer):
        raise InputError(f"{role} has no values yet: read them outside of jit, vmap and grad")
    return np.asarray(array, float)


def _pair(name: str, block: Block) -> Pair:
    roles = KERNELS[name]
    if name == "mlp":
        first, second = (values(block, role) for role in roles)
        return Pair(first[None], second.T[None], 1)
    sizes = pair_sizes(block, *(roles if name == "query_key" else roles[::-1]))
    left, right = (values(block, role) for role in roles)
    if name == "query_key":
        right_HxDxK = right.repeat(sizes.repeats, axis=1).swapaxes(0, 1)
    else:
        left, right_HxDxK = left.repeat(sizes.repeats, axis=1), right.swapaxes(1, 2)
    return Pair(left.swapaxes(0, 1), right_HxDxK, sizes.num_kv_heads)


def _sum(heads: Pair) -> Pair:
    """The sum of the products of all heads as one product."""
    _, dim, width = heads.left.shape
    # Heads of a group have the same left factor.
    left_GxDxK = heads.left[:: len(heads.left) // heads.draws]
    right_GxDxK = heads.right.reshape(heads.draws, -1, dim, width).sum(axis=1)
    left, right = (x.swapaxes(0, 1).reshape(1, dim, -1) for x in (left_GxDxK, right_GxDxK))
    return Pair(left, right, 1)
