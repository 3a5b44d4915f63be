"""At which distance do heads look? What rotary models have in parts that don't depend on tokens."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.table import aligned
from mimetic_jax.base.typed import converted
from mimetic_jax.host.cores import limited_blas
from mimetic_jax.schemes.positional import PositionalHeads, constant_after_norm
from mimetic_jax.trained.pairs import Layer, LayerPairs
from mimetic_jax.weights.rotary import Rotary

LENGTH = 64
"""Distances from 0 to this are looked at; on a grid offsets of up to an eighth of it, both ways."""


@dataclasses.dataclass(frozen=True)
class LayerHeads(Layer):
    """The distances at which the heads of one layer look by their constant parts.

    With parts q_f and k_f of query and key in the pair f, as complex numbers, the logit at distance
    Δ has Σ_f Re(q_f k̄_f e^{iθ_f Δ}) / √K, whatever the tokens.

    Attributes:
        offsets: for each head the distance where that is largest; pairs of (rows, columns) on a
            grid.
        sharpness: S of each head: the sum there over the pairs that `PositionalHeads` uses. Without
            biases of a constant direction with a fifth of the activations' energy, as the scheme
            makes it; SmolLM2's has half to two thirds, and S grows with it.
        channel: without biases, the channel that leads the constant direction; else None.
        share: its share of the direction, u_c².
        runner_up: the second eigenvalue over the first: near 1, no direction stands out.
    """

    offsets: tuple[Any, ...]
    sharpness: tuple[float, ...]
    channel: int | None = None
    share: float = 0.0
    runner_up: float = 0.0


def as_rotary(given: object) -> Rotary:
    """Rotary positions, of which the base may be given alone."""
    if isinstance(given, Rotary):
        return given
    return Rotary(converted("rotary", float, given))


def positional_heads(layer: LayerPairs, rotary: Rotary) -> LayerHeads | None:
    """Where the heads of a layer look by their constant parts; None without query and key.

    These are the biases of query and key; without biases uW_Q and uW_K of the direction u that
    query and key read most, and value and MLP least, √D u with a fifth of the energy:

        u = argmax (‖uW_Q‖²/‖W_Q‖² + ‖uW_K‖²/‖W_K‖²) / (‖uW_V‖²/‖W_V‖² + ‖uW_1‖²/‖W_1‖²),

    W_1 of a gated MLP its `up`; gains of norms are folded in.
    """
    if layer.query_key is None:
        return None
    width = layer.query_key.left.shape[-1]
    rates_FxA = rotary.rates(width)
    about: dict[str, Any] = {}
    constant = layer.biases
    if constant is None:
        direction, about = _direction(layer)
        y = constant_after_norm(len(direction))
        query, key = (
            np.einsum("d,hdk->hk", direction, factor)
            for factor in (layer.query_key.left, layer.query_key.right)
        )
        constant = y * query, y * key
    real, imaginary = rotary.places(width)
    query_HxF, key_HxF = (part[:, real] + 1j * part[:, imaginary] for part in constant)
    products_HxF = query_HxF * key_HxF.conj() / math.sqrt(width)
    offsets = _offsets(rotary.axes)
    waves_FxN = np.exp(1j * rates_FxA @ offsets.T)
    peaks = (products_HxF @ waves_FxN).real.argmax(axis=1)
    fast = rotary.fast(width, min(PositionalHeads.slowest, np.abs(rates_FxA).max()))
    heights = (products_HxF[:, fast] * waves_FxN[fast][:, peaks].T).real.sum(axis=1)
    where = [tuple(map(float, offsets[at])) for at in peaks]
    distances = tuple(at if rotary.axes > 1 else at[0] for at in where)
    return LayerHeads(layer.path, layer.index, distances, tuple(map(float, heights)), **about)


def heads_table(layers: Sequence[LayerHeads]) -> str:
    """A line per layer and a sentence: the distance of each head, and the largest S among them."""
    directions = any(layer.channel is not None for layer in layers)
    rows = [
        ("layer", *(("constant channel", "second") if directions else ()), "distance by head", "S")
    ]
    for layer in layers:
        constant = (f"{layer.channel}, {layer.share:.0%}", f"{layer.runner_up:.2f}")
        distances = " ".join(map(_shown, layer.offsets))
        height = f"{max(layer.sharpness):.2g}"
        rows.append((layer.name, *(constant if directions else ()), distances, height))
    every = [offset for layer in layers for offset in layer.offsets]
    counts = Counter(every)
    near = ", ".join(f"{_shown(offset)} in {count}" for offset, count in counts.most_common(4))
    chance = len(every) / len(_offsets(2 if isinstance(every[0], tuple) else 1))
    return "\n".join(
        [
            *aligned(rows, wrapped=len(rows[0]) - 2),
            f"constant parts of query and key peak at distance {near} of {len(every)} heads "
            f"(by chance {chance:.1f} each)",
        ]
    )


def fitted(layers: Sequence[LayerHeads], rotary: Rotary) -> PositionalHeads:
    """The scheme with the distances and sharpness of these layers, by relative depth.

    Heads whose constant part is negative at its peak get none.
    """
    if len({(len(layer.offsets), layer.channel is None) for layer in layers}) != 1:
        raise InputError("layers differ in their number of heads, or only some have biases")
    return PositionalHeads(
        rotary.base,
        tuple(layer.offsets for layer in layers),
        tuple(tuple(max(0.0, float(f"{x:.4g}")) for x in layer.sharpness) for layer in layers),
        turned=rotary.turned,
        pairs=rotary.pairs,
        axes=rotary.axes,
        channel=None if layers[0].channel is None else 0,
    )


def _direction(layer: LayerPairs) -> tuple[np.ndarray, dict[str, Any]]:
    """The unit vector u, and what is said of it."""
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


def _shown(offset: float | tuple[float, ...]) -> str:
    return f"{offset:g}" if isinstance(offset, float) else ",".join(f"{x:+g}" for x in offset)
