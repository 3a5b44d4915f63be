"""The factors of each layer's products: W_Q W_Kᵀ by head, W_V W_out, and W_1 W_2 of the MLP.

A block computes x + λ ∘ f(γ ∘ x̂), where x̂ is normalized: to the activations the products are
diag(γ) W_Q W_Kᵀ diag(γ), diag(γ) W_V W_out diag(λ) and diag(γ) W_1 W_2 diag(λ). Trained gains and
scales have signs and sizes of their own, which hide the structure of the kernels alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.schemes import Block
from mimetic_jax.schemes.base import attention_kernels
from mimetic_jax.schemes.mimetic import pair_sizes
from mimetic_jax.tree import paths
from mimetic_jax.tree.rewrite import blocks
from mimetic_jax.tree.rules import Rule, find_rule
from mimetic_jax.zoo.norms import NORMS

GAINS = ("attention_gain", "mlp_gain")
SCALES = ("attention_scale", "mlp_scale")


@dataclasses.dataclass(frozen=True)
class Layer:
    """The location of an attention layer, or of an MLP without attention beside it, in a tree.

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

    def scaled(self, left: np.ndarray | float, right: np.ndarray | float) -> Pair:
        """The factors with their D rows multiplied by [D] numbers."""
        rows = (np.expand_dims(np.asarray(x, float), -1) for x in (left, right))
        return Pair(self.left * next(rows), self.right * next(rows), self.draws)


@dataclasses.dataclass(frozen=True)
class LayerPairs(Layer):
    """The pairs of a layer; None where it doesn't have both kernels.

    Attributes:
        query_key: W_Q and W_K of each head.
        value_out: W_V and W_outᵀ of all heads as one product of rank H K (H = 1 in `Pair`).
        mlp: W_1 and W_2ᵀ of the MLP beside the attention (H = 1, K = F).
        folded: the roles of the gains and scales that the factors are multiplied by.
    """

    query_key: Pair | None
    value_out: Pair | None
    mlp: Pair | None
    folded: frozenset[str]

    @property
    def pairs(self) -> dict[str, Pair]:
        """The pairs that the layer has, by name."""
        found = {name: getattr(self, name) for name in ("query_key", "value_out", "mlp")}
        return {name: pair for name, pair in found.items() if pair is not None}


def layer_pairs(
    params: Any,
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] | None = None,
    effective: bool = True,
) -> list[LayerPairs]:
    """The pairs of every layer that has one, sorted by path.

    Args:
        params: a parameter tree; layers may be stacked, kernels fused, heads grouped.
        num_heads: H, where kernels store heads flattened.
        num_kv_heads: G, likewise; H unless given.
        rules: what leaves are; unless given, stock Flax names or the table of `zoo` that fits.
        effective: whether factors are multiplied by the gain of the norm before the layer and the
            scale after it, where the tree has them under the names of `zoo.norms` or of `rules`.

    Raises:
        InputError: as `blocks`; if a product isn't square, or a gain is of another width.

    Example:
        >>> kernels = {"query": (8, 2, 4), "key": (8, 1, 4)}
        >>> params = {name: {"kernel": np.ones(shape)} for name, shape in kernels.items()}
        >>> (layer,) = layer_pairs({"attention": params})
        >>> layer.query_key.left.shape, layer.query_key.right.shape, layer.query_key.draws
        ((2, 8, 4), (2, 8, 4), 1)
    """
    scales = _Scales(params, (*(rules or ()), *NORMS)) if effective else _Scales({}, ())
    found: list[LayerPairs] = []
    mlps: list[LayerPairs] = []
    for path, index, block in blocks(
        params, num_heads=num_heads, num_kv_heads=num_kv_heads, rules=rules
    ):
        kernels = attention_kernels(frozenset(block))
        with blaming(path):
            query_key = _query_key(block) if {"query", "key"} <= kernels else None
            value_out = _value_out(block) if {"value", "out"} <= kernels else None
            mlp = _mlp(block) if {"mlp_in", "mlp_out"} <= block.keys() else None
            if query_key or value_out:
                layer = LayerPairs(path, index, query_key, value_out, None, frozenset())
                found.append(scales.folded(layer, "attention"))
            if mlp:
                layer = LayerPairs(path, index, None, None, mlp, frozenset())
                mlps.append(scales.folded(layer, "mlp"))
    return sorted(_joined(found, mlps), key=lambda layer: paths.natural_order(layer.name))


def _joined(attention: list[LayerPairs], mlps: list[LayerPairs]) -> Iterable[LayerPairs]:
    """Each attention with the MLP of its block; MLPs of other blocks alone."""
    by_place = {(place, one.index): one for one in mlps for place in places(one.path)[:2]}
    taken: set[int] = set()
    for layer in attention:
        found = (by_place.get((place, layer.index)) for place in places(layer.path))
        mlp = next((one for one in found if one is not None and id(one) not in taken), None)
        if mlp is None:
            yield layer
        else:
            taken.add(id(mlp))
            yield dataclasses.replace(layer, mlp=mlp.mlp, folded=layer.folded | mlp.folded)
    yield from (mlp for mlp in mlps if id(mlp) not in taken)


def places(path: str) -> tuple[str, str, str]:
    """A path, that of what it is in, and that of what this is in.

    Attention and MLP of a block have one of them in common.

    >>> places("h.0.attn")
    ('h/0/attn', 'h/0', 'h')
    """
    parts = path.replace(".", "/").split("/")
    one, two, three = ("/".join(parts[: max(len(parts) - up, 0)]) for up in range(3))
    return one, two, three


class _Scales:
    """The gains and scales of a tree, by the path of their block and by role."""

    def __init__(self, params: Any, rules: Sequence[Rule]) -> None:
        named = paths.flatten(params)[0]
        among = frozenset(path for path, _ in named)
        self._found: dict[str, dict[str, np.ndarray]] = {}
        for path, leaf in named:
            described = find_rule(path, rules, among)
            if described and {*described[0].roles} & {*GAINS, *SCALES}:
                rule, block = described
                array = _array(path, leaf) + float(rule.plus_one)
                place = block.replace(".", "/")
                self._found.setdefault(place, {})[rule.roles[0]] = array

    def folded(self, layer: LayerPairs, kind: str) -> LayerPairs:
        """The layer with its pairs multiplied by what is found for its block, or one above it."""
        gain, scale = f"{kind}_gain", f"{kind}_scale"
        known = {role: x for role in (gain, scale) if (x := self._of(layer, role)) is not None}
        dims = {pair.left.shape[1] for pair in layer.pairs.values()}
        for role, array in known.items():
            if array.ndim != 1 or {array.size} != dims:
                shape, width = array.shape, next(iter(dims))
                raise InputError(f"its {role} has shape {shape}, but its products width {width}")
        before, after = known.get(gain, 1.0), known.get(scale, 1.0)
        sides = {
            "query_key": (before, before),
            "value_out": (before, after),
            "mlp": (before, after),
        }
        scaled: dict[str, Any] = {
            name: pair.scaled(*sides[name]) for name, pair in layer.pairs.items()
        }
        return dataclasses.replace(layer, folded=frozenset(known), **scaled)

    def _of(self, layer: LayerPairs, role: str) -> np.ndarray | None:
        place = layer.path.replace(".", "/")
        while True:
            if (found := self._found.get(place, {}).get(role)) is not None:
                return found if layer.index is None or found.ndim == 1 else found[layer.index]
            if not place:
                return None
            place = place.rpartition("/")[0]


def _array(path: str, leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.core.Tracer):
        raise InputError(f"{path} has no values yet: read it outside of jit, vmap and grad")
    return np.asarray(leaf, float)


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


def _mlp(block: Block) -> Pair | None:
    """W_1 and W_2ᵀ; None where they aren't the two layers of an MLP, such as a classifier."""
    (dim, hidden), out = block.shapes["mlp_in"], block.shapes["mlp_out"]
    if out != (hidden, dim):
        return None
    return Pair(values(block, "mlp_in")[None], values(block, "mlp_out").T[None], 1)
