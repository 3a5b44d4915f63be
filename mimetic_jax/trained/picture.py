"""The figures of `check`: alignments, distances at which heads look, and the first layer."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.extras import need
from mimetic_jax.trained.first_layer import Neighbors, Spectrum
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
    """The alignments of each layer, a panel per product, and rings for those of another check."""
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
    """The distance of each head, a column per layer and a row per head."""
    if not layers:
        raise InputError("no distances were read: give check(params, rotary=base)")
    if any(isinstance(offset, tuple) for layer in layers for offset in layer.offsets):
        raise InputError("distances on a grid have no picture: see the table that check prints")
    # None becomes NaN, which has no color.
    near_HxL = np.array([layer.offsets for layer in layers], float).T.clip(max=_NEAR)
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


_BIN = 50
"""Tokens of similar frequency whose shared neighbors are one point of a picture."""


def first_layer_figure(patches: Sequence[Spectrum], tokens: Sequence[Neighbors]) -> Any:
    """Energy by frequency over that of `Whitened()`, and shared neighbors by rank of the token."""
    panels: list[Spectrum | Neighbors] = [*patches, *tokens]
    if not panels:
        raise InputError("no patch embedding was seen, and no counts were given: check(…, counts=)")
    figure = _picture(4.8, 3.0 * len(panels))
    for axes, panel in zip(np.atleast_1d(figure.subplots(len(panels), 1)), panels, strict=True):
        if isinstance(panel, Spectrum):
            for number, (color, energy) in enumerate(panel.energy.items()):
                axes.plot(energy, "o", color=f"C{number}", markersize=3.5, label=color)
                axes.plot(panel.law[color], color=f"C{number}", linewidth=1)
            axes.set_xlabel("half waves per patch; lines: Whitened(), without images")
            axes.set_ylabel("energy, noise is 1")
            axes.legend(fontsize="small")
        else:
            starts = range(0, len(panel.shared), _BIN)
            axes.plot(
                [min(at + _BIN / 2, len(panel.shared)) for at in starts],
                [np.mean(panel.shared[at : at + _BIN]) for at in starts],
                "o",
                markersize=3.5,
            )
            axes.axhline(panel.chance, color="0.45", linewidth=1)
            axes.set_xlabel("rank of the token by frequency; line: chance")
            axes.set_ylabel("shared neighbors")
            axes.set_ylim(0)
        axes.set_title(panel.path, fontsize="medium")
    return figure
