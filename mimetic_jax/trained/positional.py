"""At which distance do heads look? What rotary models have in parts that don't depend on tokens."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
import scipy.special

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.table import aligned
from mimetic_jax.base.typed import converted
from mimetic_jax.host.cores import limited_blas
from mimetic_jax.schemes.positional import PositionalHeads, constant_after_norm
from mimetic_jax.trained.pairs import Layer, LayerPairs, Pair
from mimetic_jax.tree.layers import View, network
from mimetic_jax.tree.tree import Tree
from mimetic_jax.weights.rotary import Rotary

LENGTH = 64
"""Distances from 0 to this are looked at; on a grid offsets of up to an eighth of it, both ways."""


VISIBLE = 0.05
"""A head whose constant part adds less to every logit has none."""
_REACHED = 0.1
"""The share of what a constant fifth of the energy gives below which nothing constant is read."""


@dataclasses.dataclass(frozen=True)
class LayerHeads(Layer):
    """The distances at which the heads of one layer look by their constant parts.

    With parts q_f and k_f of query and key in the pair f, as complex numbers, the logit at distance
    Δ has Σ_f Re(q_f k̄_f e^{iθ_f Δ}) / √K, whatever the tokens.

    Attributes:
        offsets: for each head the distance where that is largest, None if it has no such part;
            pairs of (rows, columns) on a grid.
        sharpness: S of each head as the layer reaches it: the sum there over the pairs that
            `PositionalHeads` uses. Without biases it is that of the mean of what random tokens make
            the layer read, or, if the rules don't describe the embedding and all layers, of a
            constant fifth of the energy; SmolLM2's layers have half to two thirds.
        weights: for each head the weight at its offset in a row of attention that sees all offsets
            that are looked at, by constant parts alone.
        tokens: to how many tokens such a row attends: exp of its entropy.
        channel: without biases, the channel that leads the constant direction; else None.
        share: its share of the direction, u_c².
        runner_up: the second eigenvalue over the first: near 1, no direction stands out.
        energy: the constant direction's share of the energy of what random tokens make the layer
            read; None if that isn't known.
        assumed: S of each head by a constant fifth of the energy, if what the layer reads is known.
    """

    offsets: tuple[Any, ...]
    sharpness: tuple[float, ...]
    weights: tuple[float, ...] = ()
    tokens: tuple[float, ...] = ()
    channel: int | None = None
    share: float = 0.0
    runner_up: float = 0.0
    energy: float | None = None
    assumed: tuple[float, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether what the layer reads has the constant direction that its heads look by."""
        return not self.assumed or max(self.sharpness) > _REACHED * max(self.assumed)


Turning: TypeAlias = Rotary | float | Sequence[Rotary | None]
"""Rotary positions, or their base; of each attention layer, None if it has none, if they differ."""


class HeadReader:
    """Reads the heads of a layer of a tree."""

    def __init__(self, tree: Tree, views: Sequence[View], given: Turning) -> None:
        places, attention = [], []
        for path, index, block in views:
            if {"query", "key"} <= block.keys():
                places.append((path, index))
                attention.append(block)
        if isinstance(given, Sequence) and not isinstance(given, str):
            turns = [position if position is None else as_rotary(position) for position in given]
        else:
            turns = [as_rotary(given)] * len(attention)
        if len(turns) != len(attention):
            raise InputError(f"{len(turns)} rotary positions for {len(attention)} attention layers")
        self.turns: Sequence[Rotary | None] = turns
        self._turns = dict(zip(places, turns, strict=True))
        roles = {"query_bias", "key_bias"}
        biases = [block[role] for block in attention for role in roles & block.keys()]
        self._zero = not any(map(np.any, biases))  # then a channel may hold what they don't
        biased = all(roles <= block.keys() for block in attention) and not self._zero
        self._constants = {} if biased else _constants(tree, self.turns)

    def read(self, layer: LayerPairs) -> LayerHeads | None:
        """None for a layer without query and key, or without positions."""
        place = layer.path, layer.index
        if layer.query_key is None or (turning := self._turns[place]) is None:
            return None
        if self._zero:
            layer = dataclasses.replace(layer, biases=None)
        return positional_heads(layer, turning, self._constants.get(place))


def _constants(tree: Tree, turns: Sequence[Rotary | None]) -> dict[Any, np.ndarray]:
    """The constant part [D] of what each attention reads, before the gain of its norm; nothing if
    the rules don't describe the embedding and all layers."""
    try:
        decoder = network(tree)
    except InputError:
        return {}
    if any(layer.mlp is None for layer in decoder.layers):
        return {}
    means = {}
    passed = decoder.read_by_attention(turns)
    for layer, (activations_NxD, _) in zip(decoder.layers, passed, strict=True):
        x_NxD = np.asarray(activations_NxD, float)
        if "attention_shift" in layer.attention:
            x_NxD = x_NxD - x_NxD.mean(axis=1, keepdims=True)
        sizes = np.sqrt(np.mean(x_NxD**2, axis=1, keepdims=True))
        means[layer.at] = np.mean(x_NxD / np.maximum(sizes, np.finfo(float).tiny), axis=0)
    return means


def as_rotary(given: object) -> Rotary:
    """Rotary positions, of which the base may be given alone."""
    if isinstance(given, Rotary):
        return given
    return Rotary(converted("rotary", float, given))


def positional_heads(
    layer: LayerPairs, rotary: Rotary, mean_D: np.ndarray | None = None
) -> LayerHeads | None:
    """Return where the heads of a layer look by their constant parts; None without query and key.

    These are the biases of query and key; without biases yuW_Q and yuW_K of the direction u that
    query and key read most, and value and MLP least, y² a fifth of the energy D,

        u = argmax (‖uW_Q‖²/‖W_Q‖² + ‖uW_K‖²/‖W_K‖²) / (‖uW_V‖²/‖W_V‖² + ‖uW_1‖²/‖W_1‖²),

    W_1 of a gated MLP its `up`. S is that of mW_Q and mW_K, if the mean m of the normalized
    activations is known. Added to both is what the bias of the norm adds. Gains are folded in,
    those of query and key norms too.
    """
    if (pair := layer.query_key) is None:
        return None
    dim, width = pair.left.shape[1:]
    assumed_D: np.ndarray | None = None
    about: dict[str, Any] = {}
    if layer.biases is None:
        direction, about = _direction(layer)
        about["energy"] = None if mean_D is None else float(direction @ mean_D) ** 2 / dim
        # Beside the norm's bias its size matters, else only for whether there is a part at all.
        known = mean_D is not None and layer.shifted is not None
        assumed_D = direction * (direction @ mean_D if known else constant_after_norm(dim))
    rates_FxA, offsets = rotary.rates(width), _offsets(rotary.axes)
    waves_FxN = np.exp(1j * rates_FxA @ offsets.T)
    products_HxF = _products(layer, pair, rotary, assumed_D)
    curves_HxN = (products_HxF @ waves_FxN).real
    peaks = curves_HxN.argmax(axis=1)
    fast = rotary.fast(width, min(PositionalHeads.slowest, np.abs(rates_FxA).max()))

    def heights(products_HxF: np.ndarray) -> tuple[float, ...]:
        at_peak_HxF = (products_HxF[:, fast] * waves_FxN[fast][:, peaks].T).real
        return tuple(map(float, at_peak_HxF.sum(axis=1)))

    sharpness = heights(products_HxF)
    reached_HxN = curves_HxN
    if layer.biases is None and mean_D is not None:
        about["assumed"] = sharpness
        products_HxF = _products(layer, pair, rotary, mean_D)
        sharpness, reached_HxN = heights(products_HxF), (products_HxF @ waves_FxN).real
    rows_HxN = scipy.special.softmax(reached_HxN, axis=1)
    about["weights"] = tuple(map(float, rows_HxN[np.arange(len(peaks)), peaks]))
    about["tokens"] = tuple(map(float, np.exp(scipy.special.entr(rows_HxN).sum(axis=1))))
    where = [tuple(map(float, offsets[at])) for at in peaks]
    distances = tuple(
        (at if rotary.axes > 1 else at[0]) if size >= VISIBLE else None
        for at, size in zip(where, np.abs(curves_HxN).max(axis=1), strict=True)
    )
    return LayerHeads(layer.path, layer.index, distances, sharpness, **about)


def _products(
    layer: LayerPairs, pair: Pair, rotary: Rotary, read_D: np.ndarray | None
) -> np.ndarray:
    """q_f k̄_f / √K of the constant parts of heads [H, F], if they read this beside biases."""
    both, content = (pair.left, pair.right), 1.0
    if read_D is None:
        parts = list(layer.biases or ())
    else:
        parts = [np.einsum("d,hdk->hk", read_D, factor) for factor in both]
        content = max(0.0, 1 - read_D @ read_D / len(read_D))
    if layer.shifted is not None:
        parts = [part + shift for part, shift in zip(parts, layer.shifted, strict=True)]
    width = pair.left.shape[-1]
    real, imaginary = rotary.places(width)
    query_HxF, key_HxF = (
        part[:, real] + 1j * part[:, imaginary]
        for part in (
            _normalized(*each, content) for each in zip(parts, both, layer.gains, strict=True)
        )
    )
    return query_HxF * key_HxF.conj() / math.sqrt(width)


def _normalized(
    part_HxK: np.ndarray, kernel_HxDxK: np.ndarray, gain_K: np.ndarray | None, content: float
) -> np.ndarray:
    """After the norm over columns, if it has this gain, of what is constant and of content."""
    if gain_K is None:
        return part_HxK
    squares = content * np.square(kernel_HxDxK).sum(axis=(1, 2)) + np.square(part_HxK).sum(axis=1)
    sizes = np.sqrt(np.maximum(squares, np.finfo(float).tiny) / len(gain_K))
    return part_HxK / sizes[:, None] * gain_K


def heads_table(layers: Sequence[LayerHeads]) -> str:
    """Return a line per layer and a sentence: the distance of each head, and the largest S among
    them."""
    directions = any(layer.channel is not None for layer in layers)
    known = any(layer.energy is not None for layer in layers)
    axes = 2 if any(isinstance(at, tuple) for layer in layers for at in layer.offsets) else 1
    columns = {
        "layer": [layer.name for layer in layers],
        "constant channel": [f"{x.channel}, {x.share:.0%}" for x in layers if directions],
        "second": [f"{x.runner_up:.2f}" for x in layers if directions],
        "distance by head": [" ".join(map(_shown, layer.offsets)) for layer in layers],
        "energy": ["" if x.energy is None else f"{x.energy:.1%}" for x in layers if known],
        "S": [f"{max(layer.sharpness):.2g}" for layer in layers],
        "weight there": [_mean(layer, layer.weights, ".2f") for layer in layers],
        f"tokens of {len(_offsets(axes))}": [_mean(layer, layer.tokens, ".0f") for layer in layers],
    }
    shown = {name: cells for name, cells in columns.items() if cells}
    rows = [tuple(shown), *zip(*shown.values(), strict=True)]
    seen = [[at for at in layer.offsets if at is not None] for layer in layers]
    every = [at for layer, heads in zip(layers, seen, strict=True) if layer.reached for at in heads]
    heads = sum(len(layer.offsets) for layer in layers)
    lines = aligned(rows, wrapped=tuple(shown).index("distance by head"))
    blind = [x for x, heads in zip(layers, seen, strict=True) if heads and not x.reached]
    if blind:
        best = max(blind, key=lambda layer: max(layer.sharpness))
        lines.append(
            f"S {max(best.sharpness):.2g} of {max(best.assumed):.2g}: the channel isn't constant "
            f"in what {len(blind)} of {len(layers)} layers read, so their heads don't look there"
        )
    if every:
        near = ", ".join(
            f"{_shown(offset)} in {count}" for offset, count in Counter(every).most_common(4)
        )
        chance = len(every) / len(_offsets(2 if isinstance(every[0], tuple) else 1))
        lines.append(
            f"constant parts of query and key peak at distance {near} of {heads} heads (by chance "
            f"{chance:.1f} each)"
        )
    if without := heads - sum(map(len, seen)):
        lines.append(f"{without} of {heads} heads have no constant part (-)")
    if directions and not known:
        lines.append(
            "S is that of a constant fifth of the energy: what layers reach shows if rules "
            "describe the embedding of tokens and every MLP"
        )
    return "\n".join(lines)


def fitted(layers: Sequence[LayerHeads], rotary: Rotary) -> PositionalHeads | None:
    """Return the scheme with the distances and sharpness of these layers, by relative depth; None
    if no head looks at a distance.

    Heads without a constant part that is reached, or one that is negative at its peak, get none.
    """
    if len({(len(layer.offsets), layer.channel is None) for layer in layers}) != 1:
        raise InputError("layers differ in their number of heads, or only some have biases")
    nowhere: Any = 0.0 if rotary.axes == 1 else (0.0,) * rotary.axes
    sharpness = tuple(
        tuple(
            float(f"{x:.4g}") if at is not None and layer.reached and x >= VISIBLE else 0.0
            for x, at in zip(layer.sharpness, layer.offsets, strict=True)
        )
        for layer in layers
    )
    if not any(map(any, sharpness)):
        return None
    return PositionalHeads(
        rotary.base,
        tuple(tuple(nowhere if x is None else x for x in layer.offsets) for layer in layers),
        sharpness,
        turned=rotary.turned,
        pairs=rotary.pairs,
        axes=rotary.axes,
        channel=None if layers[0].channel is None else 0,
    )


def stands_out(layer: LayerPairs) -> bool:
    """Tell whether a head's biases add more than ½ to logits, or query and key read one direction
    far more than all others."""
    if layer.biases is not None:
        query_H, key_H = (np.linalg.norm(bias, axis=1) for bias in layer.biases)
        return bool((query_H * key_H).max() > math.sqrt(layer.biases[0].shape[1]) / 2)
    return layer.query_key is not None and _direction(layer)[1]["runner_up"] < _ALONE


_ALONE = 0.1
"""The second eigenvalue over the first where one direction is alone; of noise it is above ½."""


def _direction(layer: LayerPairs) -> tuple[np.ndarray, dict[str, Any]]:
    """Find the constant direction u, with its channel, share and eigenvalue ratio."""
    pair, avoiding = layer.query_key, (layer.by_head, layer.mlp)
    readers = [_read_from(factor) for factor in (pair.left, pair.right)] if pair else []
    avoided = [_read_from(each.left) for each in avoiding if each is not None]
    dim = len(readers[0])
    # A channel that value and MLP don't read at all has an eigenvalue, too.
    least = sum(avoided, start=np.zeros((dim, dim))) + 1e-6 / dim * np.eye(dim)
    with limited_blas():
        values, vectors = scipy.linalg.eigh(
            sum(readers), least, subset_by_index=(max(dim - 2, 0), dim - 1)
        )
    unit = vectors[:, -1] / np.linalg.norm(vectors[:, -1])
    channel = int(np.argmax(unit**2))
    about = {
        "channel": channel,
        "share": float(unit[channel] ** 2),
        "runner_up": float(values[0] / values[-1]),
    }
    return unit, about


def _read_from(factor_HxDxK: np.ndarray) -> np.ndarray:
    """W Wᵀ / ‖W‖² of all heads together, [D, D]."""
    flat = factor_HxDxK.swapaxes(0, 1).reshape(factor_HxDxK.shape[1], -1)
    return np.asarray(flat @ flat.T / max(np.sum(flat**2), np.finfo(float).tiny))


def _offsets(axes: int) -> np.ndarray:
    """The offsets that are looked at, [N, a]."""
    if axes == 1:
        return np.arange(LENGTH, dtype=float)[:, None]
    reach = np.arange(-LENGTH // 8, LENGTH // 8 + 1, dtype=float)
    return np.stack(np.meshgrid(reach, reach, indexing="ij"), axis=-1).reshape(-1, 2)


def _mean(layer: LayerHeads, numbers: Sequence[float], form: str) -> str:
    """The mean of the heads with a constant part; "" if there are none."""
    pairs = zip(layer.offsets, numbers, strict=True)
    own = [number for offset, number in pairs if offset is not None]
    return format(np.mean(own), form) if own else ""


def _shown(offset: float | tuple[float, ...] | None) -> str:
    if offset is None:
        return "-"
    return f"{offset:g}" if isinstance(offset, float) else ",".join(f"{x:+g}" for x in offset)
