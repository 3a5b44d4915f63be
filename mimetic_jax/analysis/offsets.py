"""Attention by the place of the key as the query sees it: what an impulse is in a map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.trained.aim import aim
from mimetic_jax.weights.impulse import impulse_matrices, offsets


def by_offset(maps: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Attention averaged over all pairs of patches with the same key − query.

    Of maps [..., N, N], whose last h·w tokens are the grid's, row by row, it is
    [..., 2h − 1, 2w − 1] with offset (m, n) at (h − 1 + m, w − 1 + n).

    Example:
        >>> looks_right = np.array([[0.1, 0.9], [0.0, 1.0]])
        >>> by_offset(looks_right, (1, 2)).tolist()
        [[0.0, 0.55, 0.9]]

    Reference: Structured Initialization for Vision Transformers, figures 3 and 6.
    """
    h, w = grid
    maps = _patches(maps, grid).reshape(*maps.shape[:-2], h, w, h, w)
    means = np.empty((*maps.shape[:-4], 2 * h - 1, 2 * w - 1), maps.dtype)
    for m in range(1 - h, h):
        for n in range(1 - w, w):
            rows, columns = _inside(h, m), _inside(w, n)
            pairs = maps[..., rows[:, None], columns, rows[:, None] + m, columns + n]
            means[..., h - 1 + m, w - 1 + n] = pairs.mean((-2, -1))
    return means


def hits(
    maps: np.ndarray, grid: tuple[int, int], offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how often a head looks at its offset first, and how much attention is there.

    Only patches whose target is inside the grid count, and only attention between patches: what
    the class token gets is neither a hit nor mass. Of maps [..., H, N, N] and the (row, column) of
    each head's impulse [H, 2] returned are the share of patches whose largest weight is at the
    offset, and the mean weight there, both [..., H].

    Example:
        >>> looks_right = np.array([[[0.1, 0.9], [0.0, 1.0]]])
        >>> [pixels.tolist() for pixels in hits(looks_right, (1, 2), np.array([[0, 1]]))]
        [[1.0], [0.9]]

    Reference: Structured Initialization for Vision Transformers, figure 3.
    """
    found = aim(_patches(maps, grid), impulse_matrices(grid, np.asarray(offsets)))
    return found.hits, found.weights


def _inside(size: int, shift: int) -> np.ndarray:
    """The places of an axis whose target is on it."""
    return np.arange(max(-shift, 0), size - max(shift, 0))


def _patches(maps: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """The rows and columns of patches."""
    count = math.prod(grid)
    return maps[..., -count:, -count:]


_REACH = 4
"""Offsets are shown up to this many rows and columns."""

_VIEWS = {"map": "query × key", "offset": "by offset"}


def draw(
    path: AnyPath,
    maps: Mapping[str, Sequence[np.ndarray]],
    grid: tuple[int, int],
    *,
    layers: Sequence[int],
) -> list[AnyPath]:
    """Draw attention between patches: columns are labels × heads, two rows a layer.

    The first is patch by patch, the second averaged over pairs with the same key − query. Each has
    one color scale. Above each column's panels stand hit and mass of the averaged map, for the
    offset that the released order gives to the head, impulse or not: see `analysis.offsets.hits`.

    Maps are [H, N, N] per label and layer, of `attention_maps`, with as many heads for all labels.

    Reference: Structured Initialization for Vision Transformers, figures 3 and 6.
    """
    depth = min(map(len, maps.values()))
    drawn = {label: style.by_layer(layers, all_, label) for label, all_ in maps.items()}
    heads = [(label, head) for label, all_ in maps.items() for head in range(len(all_[0]))]
    seen = {
        (view, label, number): _seen(view, layer, grid)
        for view in _VIEWS
        for label, group in drawn.items()
        for number, layer in group.items()
    }
    tops = {
        view: style.limit(array for (kind, *_), array in seen.items() if kind == view)
        for view in _VIEWS
    }
    rows: list[list[object]] = []
    with style.matrices(
        len(layers) * len(_VIEWS), len(heads), most=0.9, beside=0.9, over=0.2, above=0.55
    ) as (figure, axes):
        images: dict[str, Any] = {}
        for column, (label, head) in enumerate(heads):
            for at, (number, layer) in enumerate(drawn[label].items()):
                shares, masses = hits(layer, grid, offsets(3, len(layer)))
                for below, (view, shows) in enumerate(_VIEWS.items()):
                    panel = axes[at * len(_VIEWS) + below, column]
                    matrix = seen[view, label, number][head]
                    images[view] = style.positive(panel, matrix, tops[view])
                    if not below:
                        panel.set_title(_number(shares[head], masses[head]), pad=2)
                    if column == 0:
                        panel.set_ylabel(shows if below else f"layer {number}\n{shows}")
                    labels = (label, number, head + 1, view, shares[head], masses[head])
                    rows += style.matrix_rows(labels, matrix)
        for column, (label, head) in enumerate(heads):
            top = axes[0, column]
            top.set_title(f"{label}\nhead {head + 1}\n{top.get_title()}", pad=2)
        for beside, image in zip(axes[:, -1], images.values(), strict=False):
            bar = {"extend": "max", "label": "attention", "aspect": 14, "pad": 0.02}
            figure.colorbar(image, ax=beside, **bar)
        lines = [
            "above each map: the share of patches that attend most to the head's own offset,",
            "and the mean attention there; by offset: the mean over patches, itself in the middle",
        ]
        lines += [some] if (some := style.of_depth(layers, depth)) else []
        figure.supxlabel("\n".join(lines), fontsize=7)
        header = ["label", "layer", "head", "view", "hit", "mass", "row"]
        return style.write(figure, path, header, rows)


def _seen(view: str, layer: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """What a view shows of a layer, [H, …, …]."""
    if view == "map":
        return _patches(layer, grid)
    h, w = grid
    down, across = min(_REACH, h - 1), min(_REACH, w - 1)
    around = by_offset(layer, grid)
    return around[:, h - 1 - down : h + down, w - 1 - across : w + across]


def _number(share: float, mass: float) -> str:
    return f"{share:.2f} {mass:.2f}".replace("0.", ".")
