"""The factors of each layer's products: W_Q W_Kᵀ by head, W_V W_out, and W_1 W_2 of the MLP.

A block computes x + λ ∘ f(γ ∘ x̂), where x̂ is normalized: to the activations the products are
diag(γ) W_Q W_Kᵀ diag(γ), diag(γ) W_V W_out diag(λ) and diag(γ) W_1 W_2 diag(λ). Trained gains and
scales have signs and sizes of their own, which hide the structure of the kernels alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.schemes import Block
from mimetic_jax.schemes.mimetic import pair_sizes
from mimetic_jax.tree import paths
from mimetic_jax.tree.rewrite import blocks
from mimetic_jax.tree.rules import Rule, find_rule
from mimetic_jax.zoo.norms import NORMS

GAINS = ("attention_gain", "mlp_gain")
SCALES = ("attention_scale", "mlp_scale")

_View: TypeAlias = tuple[str, int | None, Block]
"""(path, layer, block), as `blocks` lists them: arrays are read when they are asked for."""


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

    def scaled(self, left: np.ndarray | None, right: np.ndarray | None) -> Pair:
        """The factors, their D rows multiplied by [D] numbers; None leaves a factor as it is."""

        def rows(factor: np.ndarray, numbers: np.ndarray | None) -> np.ndarray:
            return factor if numbers is None else factor * numbers[:, None]

        return Pair(rows(self.left, left), rows(self.right, right), self.draws)


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
) -> Iterator[LayerPairs]:
    """The pairs of every layer that has one, sorted by path; each is read when it is asked for.

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
    views = blocks(params, num_heads=num_heads, num_kv_heads=num_kv_heads, rules=rules)
    scales = _Scales(params, (*(rules or ()), *NORMS)) if effective else _Scales({}, ())
    for parts in _layers(views):
        yield _read(parts, scales)


def _layers(views: Iterable[_View]) -> list[dict[str, _View]]:
    """Each attention with the MLP of its block, and MLPs of other blocks alone, sorted by path."""
    attention = [view for view in views if _has_product("attention", view[2])]
    mlps = {view[:2]: view for view in views if _has_product("mlp", view[2])}
    by_place = {(place, at[1]): at for at in mlps for place in above(at[0])[:2]}
    layers = []
    for view in attention:
        near = (by_place.get((place, view[1])) for place in above(view[0])[:3])
        beside = next((at for at in near if at in mlps), None)
        layers.append({"attention": view} | ({"mlp": mlps.pop(beside)} if beside else {}))
    layers += [{"mlp": view} for view in mlps.values()]
    return sorted(layers, key=lambda parts: paths.natural_order(_location(parts).name))


def _location(parts: Mapping[str, _View]) -> Layer:
    path, index, _ = parts["attention"] if "attention" in parts else parts["mlp"]
    return Layer(path, index)


def above(path: str) -> list[str]:
    """A path, with "/" between its names, and those of what it is in, up to the root.

    Attention and MLP of a block have one of the first in common.

    >>> above("h.0.attn")
    ['h/0/attn', 'h/0', 'h', '']
    """
    names = path.replace(".", "/").split("/")
    return ["/".join(names[:count]) for count in range(len(names), -1, -1)]


def _read(parts: Mapping[str, _View], scales: _Scales) -> LayerPairs:
    pairs: dict[str, Pair] = {}
    folded: set[str] = set()
    for kind, (path, index, block) in parts.items():
        with blaming(path):
            found = {
                name: read(block)
                for name, (roles, read) in _PRODUCTS[kind].items()
                if roles <= block.keys()
            }
            known = scales.around(kind, path, index, {one.left.shape[1] for one in found.values()})
        before, after = known.get(f"{kind}_gain"), known.get(f"{kind}_scale")
        for name, pair in found.items():
            pairs[name] = pair.scaled(before, before if name == "query_key" else after)
        folded |= known.keys()
    at = _location(parts)
    query_key, value_out, mlp = (pairs.get(name) for name in ("query_key", "value_out", "mlp"))
    return LayerPairs(at.path, at.index, query_key, value_out, mlp, frozenset(folded))


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
                array = _concrete(path, leaf) + float(rule.plus_one)
                self._found.setdefault(above(block)[0], {})[rule.roles[0]] = array

    def around(
        self, kind: str, path: str, index: int | None, dims: set[int]
    ) -> dict[str, np.ndarray]:
        """The gain and the scale of a layer, by role: those of its block, or of one above it."""
        known: dict[str, np.ndarray] = {}
        for role in (f"{kind}_gain", f"{kind}_scale"):
            found = (self._found.get(place, {}).get(role) for place in above(path))
            array = next((one for one in found if one is not None), None)
            if array is None:
                continue
            known[role] = array if index is None or array.ndim == 1 else array[index]
            if known[role].ndim != 1 or {known[role].size} != dims:
                shape, width = known[role].shape, next(iter(dims))
                raise InputError(f"its {role} has shape {shape}, but its products width {width}")
        return known


def _concrete(name: str, array: Any) -> np.ndarray:
    if isinstance(array, jax.core.Tracer):
        raise InputError(f"{name} has no values yet: read them outside of jit, vmap and grad")
    return np.asarray(array, float)


def values(block: Block, role: str) -> np.ndarray:
    """The array of a role in float64.

    Raises:
        InputError: it is traced.
    """
    return _concrete(role, block[role])


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


def _mlp(block: Block) -> Pair:
    return Pair(values(block, "mlp_in")[None], values(block, "mlp_out").T[None], 1)


_Reader: TypeAlias = Callable[[Block], Pair]
_PRODUCTS: Mapping[str, Mapping[str, tuple[set[str], _Reader]]] = {
    "attention": {
        "query_key": ({"query", "key"}, _query_key),
        "value_out": ({"value", "out"}, _value_out),
    },
    "mlp": {"mlp": ({"mlp_in", "mlp_out"}, _mlp)},
}
"""The pairs of each kind of layer by name: the roles of their kernels, and what reads them."""


def _has_product(kind: str, block: Block) -> bool:
    if not any(roles <= block.keys() for roles, _ in _PRODUCTS[kind].values()):
        return False
    # The layers of a classifier may have the names of an MLP's.
    return kind != "mlp" or block.shapes["mlp_out"] == block.shapes["mlp_in"][::-1]
