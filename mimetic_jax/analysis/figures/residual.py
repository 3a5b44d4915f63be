"""What channel mixing alone can't restore of each block."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.train.store.places import AnyPath


def draw(path: AnyPath, residuals: Mapping[str, Mapping[str, np.ndarray]]) -> list[AnyPath]:
    """Draw the relative residual per block and kind of fixed filters: a panel per network.

    Args:
        path: of the files, without their suffix.
        residuals: per label and kind, from `analysis.residual.channel_mixing_residuals`.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: if matplotlib isn't installed.

    Reference: Structured Initialization for Vision Transformers, proposition 1.
    """
    rows: list[list[object]] = []
    width = style.COLUMN if len(residuals) == 1 else style.PAGE
    with style.canvas(width, 2.4) as figure:
        panels = figure.subplots(1, len(residuals), sharey=True, squeeze=False)[0]
        for axes, (label, of_kind) in zip(panels, residuals.items(), strict=True):
            lines = style.line_styles(of_kind)
            for (kind, line), marker in zip(lines.items(), style.MARKERS, strict=False):
                layers = list(range(1, len(of_kind[kind]) + 1))
                # Open and of different sizes, as random and impulse filters often agree.
                size = 8 if kind == "random" else 4
                open_ = {"marker": marker, "markerfacecolor": "none", "markersize": size}
                axes.plot(layers, of_kind[kind], label=kind, **line, **open_)
                pairs = zip(layers, of_kind[kind].tolist(), strict=True)
                rows += [[label, kind, layer, value] for layer, value in pairs]
            axes.set_ylim(0, 1.03)
            axes.set_title(label)
            axes.set_xlabel("layer")
            axes.xaxis.get_major_locator().set_params(integer=True)
            style.tidy(axes)
        panels[0].set_ylabel("residual of channel mixing alone")
        style.legend(figure)
        return style.write(figure, path, ["label", "filters", "layer", "residual"], rows)
