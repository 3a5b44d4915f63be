"""The figures of `check`: alignments, and the distances at which heads look."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.extras import need
from mimetic_jax.trained.positional import LayerHeads

_TICKS = 16
"""Most layers that a picture names: of more, every second or third one."""
_NEAR = 4
"""Distances that have a color of their own; those from here on share one."""


def _picture(width: float, height: float) -> Any:
    """An empty matplotlib figure, in inches, which notebooks show."""
    need("drawing", "plot")
    from matplotlib.figure import Figure

    class Picture(Figure):
        """Notebooks show a plain `Figure` only after pyplot has drawn one."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png")
            return file.getvalue()

    return Picture(figsize=(width, height), layout="constrained")


Points = Mapping[str, Sequence[tuple[int, float]]]
"""Number of the layer and alignment, by the title of a panel."""


def alignments_figure(
    points: Points,
    noise_L: np.ndarray,
    noise_label: str,
    *,
    label: str | None,
    beside: Points,
    beside_label: str,
) -> Any:
    """Draw the alignments of each layer, a panel per product, with rings for another check."""
    depth = np.arange(len(noise_L))
    # One above the other, so that the words can be read on a phone too.
    figure = _picture(4.8, 0.9 + 1.9 * len(points))
    axes = np.atleast_1d(figure.subplots(len(points), 1, sharex=True, sharey=True))
    for panel, title in zip(axes, points, strict=True):
        panel.fill_between(depth, -noise_L, noise_L, color="0.85", label=noise_label)
        if title in beside:
            rings = {"color": "0.45", "markerfacecolor": "none", "markersize": 4}
            panel.plot(*zip(*beside[title], strict=True), "o", label=beside_label, **rings)
        panel.plot(*zip(*points[title], strict=True), "o", markersize=3.5, label=label)
        panel.set_title(title)
        panel.set_xticks(depth[:: -(-len(depth) // _TICKS)])
    axes[-1].set_xlabel("layer")
    figure.supylabel("alignment with the identity", fontsize="medium")
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", fontsize="small")
    return figure


def heads_figure(layers: Sequence[LayerHeads]) -> Any:
    """Draw the distance of each head, a column per layer and a row per head."""
    if not layers:
        raise InputError("no distances were read; pass check(params, rotary=base)")
    if any(isinstance(offset, tuple) for layer in layers for offset in layer.offsets):
        raise InputError("distances on a grid have no picture: see the table that check prints")
    # None becomes NaN, which has no color; so do heads that other layers have.
    rows = list(itertools.zip_longest(*(layer.offsets for layer in layers)))
    near_HxL = np.array(rows, float).clip(max=_NEAR)
    heads, depth = near_HxL.shape
    figure = _picture(max(4.8, 0.24 * depth + 1.4), 0.24 * heads + 1.0)
    axes = figure.subplots()
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    colors = ListedColormap([*colormaps["viridis_r"](np.linspace(0.15, 1, _NEAR)), "0.88"])
    image = axes.imshow(near_HxL, cmap=colors, vmin=-0.5, vmax=_NEAR + 0.5, aspect="equal")
    axes.set_xlabel("layer")
    axes.set_ylabel("head")
    bar = figure.colorbar(image, ticks=range(_NEAR + 1), label="tokens back")
    bar.ax.set_yticklabels([*map(str, range(_NEAR)), f"{_NEAR} …"])
    return figure
