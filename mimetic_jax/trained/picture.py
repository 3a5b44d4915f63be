"""Figures that notebooks show, and that of the distances at which heads look."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.extras import need
from mimetic_jax.trained.positional import LayerHeads

_NEAR = 4
"""Distances that have a color of their own; those from here on share one."""


def picture(width: float, height: float) -> Any:
    """An empty matplotlib figure, in inches."""
    need("drawing", "plot")
    from matplotlib.figure import Figure

    class Picture(Figure):
        """Notebooks show a plain `Figure` only after pyplot has drawn one."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png")
            return file.getvalue()

    return Picture(figsize=(width, height), layout="constrained")


def heads_figure(layers: Sequence[LayerHeads]) -> Any:
    """The distance of each head, a column per layer and a row per head."""
    if not layers:
        raise InputError("no distances were read: give check(params, rotary=base)")
    if isinstance(layers[0].offsets[0], tuple):
        raise InputError("distances on a grid have no picture: see the table that check prints")
    near_HxL = np.array([layer.offsets for layer in layers]).T.clip(max=_NEAR)
    heads, depth = near_HxL.shape
    figure = picture(max(4.8, 0.24 * depth + 1.4), 0.24 * heads + 1.0)
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
