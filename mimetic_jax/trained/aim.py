"""Where attention looks: how many rows at their head's target, with what weight, at how many
tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.special

from mimetic_jax.base.table import aligned, paragraph
from mimetic_jax.trained.pairs import Layer, LayerPairs
from mimetic_jax.weights.factor import Array
from mimetic_jax.weights.impulse import impulse_matrices, layer_norm

LARGEST = 1024
"""Positions of which maps [N, N] of all heads are computed."""

MOST = 0.5
"""The share of rows below which a note says that few attend to their head's own offset."""


@dataclasses.dataclass(frozen=True)
class Aim:
    """How attention maps meet their targets, by head.

    Attributes:
        hits: the share of rows whose largest weight is at their target, of those that have one.
        weights: the mean weight at the target, of the same rows.
        tokens: how many tokens a row attends to: exp of its entropy, on average of all rows.
        own: whether the targets were read from the maps, the offset of most rows of each head.
    """

    hits: np.ndarray
    weights: np.ndarray
    tokens: np.ndarray
    own: bool = False

    def cells(self) -> tuple[str, str, str]:
        """Return the means over heads as tables show them."""
        hits, weight, tokens = (x.mean() for x in (self.hits, self.weights, self.tokens))
        return f"{hits:.0%}", f"{weight:.2f}", f"{tokens:.0f}"


def aim(maps: Array, targets: Array) -> Aim:
    """Compare attention maps [..., H, N, N] with targets [H, N, N], at most a 1 in each row.

    >>> uniform = aim(np.full((1, 4, 4), 0.25), np.eye(4)[None])
    >>> float(uniform.hits[0]), float(uniform.weights[0]), float(uniform.tokens[0])
    (0.25, 0.25, 4.0)
    """
    maps = np.asarray(maps, np.float64)
    rows = targets.sum(axis=-1) > 0
    counts = np.maximum(rows.sum(axis=-1), 1)
    hits = (maps.argmax(axis=-1) == targets.argmax(axis=-1)) & rows
    entropies = scipy.special.entr(maps).sum(axis=-1)
    return Aim(
        hits.sum(axis=-1) / counts,
        (maps * targets).sum(axis=(-2, -1)) / counts,
        np.exp(entropies).mean(axis=-1),
    )


def own_targets(maps: Array, grid: tuple[int, int]) -> Array:
    """Return the offset at which most rows of a head have their largest weight, as targets [H, N,
    N].

    Maps are [..., H, N, N], of a grid of N = h·w tokens.

    >>> looks_right = np.array([[[0.1, 0.9], [0.0, 1.0]]])
    >>> own_targets(looks_right, (1, 2))[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    h, w = grid
    row, column = np.divmod(np.arange(h * w), w)
    best_row, best_column = np.divmod(np.asarray(maps).argmax(axis=-1), w)
    codes = (best_row - row + h) * 2 * w + best_column - column + w  # [..., H, N]
    by_head = np.moveaxis(codes, -2, 0).reshape(codes.shape[-2], -1)
    common = [np.bincount(head).argmax() for head in by_head]
    shifts = np.stack(np.divmod(common, 2 * w), axis=-1) - (h, w)
    return impulse_matrices(grid, shifts)


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


def aim_on_grid(maps: Array, grid: tuple[int, int], targets: Array | None = None) -> Aim:
    """Compare maps [..., H, N, N] with targets [H, N, N], else with each head's own offset."""
    if targets is None:
        return dataclasses.replace(aim(maps, own_targets(maps, grid)), own=True)
    return aim(maps, targets)


@dataclasses.dataclass(frozen=True)
class LayerAim(Layer):
    """Where the heads of a layer look, each against its target or the offset of most of its rows.

    Attributes:
        aim: hits, weights and tokens by head.
        count: N, the tokens that a row can attend to.
    """

    aim: Aim
    count: int


def from_positions(
    layer: LayerPairs, position: Array, grid: tuple[int, int], targets: Array | None = None
) -> LayerAim | None:
    """Return where a layer looks by positions alone: X is the position table [N, D], normalized.

    None without query and key, of another width, or with more than `LARGEST` positions.
    """
    pair = layer.query_key
    if pair is None or pair.left.shape[1] != position.shape[1] or len(position) > LARGEST:
        return None
    kernels = (pair.left.swapaxes(0, 1), pair.right.swapaxes(0, 1))
    maps = attention_maps(*kernels, layer_norm(position))
    return LayerAim(layer.path, layer.index, aim_on_grid(maps, grid, targets), len(position))


def aims_table(layers: Sequence[LayerAim]) -> str:
    """Return a line per layer, its heads averaged, and a note on those that hardly attend to an
    offset."""
    rows = [
        ("layer", "rows at their head's offset", "weight there", "tokens that a row attends to")
    ]
    for layer in layers:
        hits, weight, tokens = layer.aim.cells()
        rows.append((layer.name, hits, weight, f"{tokens} of {layer.count}"))
    lines = ["attention from positions alone:", *aligned(rows)]
    weak = [layer.name for layer in layers if layer.aim.hits.mean() < MOST]
    if weak:
        lines.append(
            paragraph(
                f"in {len(weak)} of {len(layers)} layers fewer than half of the rows attend most "
                "to one offset of their head"
            )
        )
    return "\n".join(lines)
