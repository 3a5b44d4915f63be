"""What a scheme gains, over how strong the default is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from mimetic_jax.analysis import style
from mimetic_jax.base.errors import InputError
from mimetic_jax.train.store.places import AnyPath, Place


@dataclasses.dataclass(frozen=True)
class Point:
    """An arm and the default of the same comparison.

    Attributes:
        source: who measured: a paper, or "ours".
        setting: data set and model.
        default: score of the default initialization.
        reached: score of the arm.
        sd: standard deviation of their difference over seeds, if known.
        n: seeds; 0 if unknown.
        panel: where it is drawn.
    """

    source: str
    setting: str
    default: float
    reached: float
    sd: float | None = None
    n: int = 0
    panel: str = ""

    @property
    def gain(self) -> float:
        """The difference of the two."""
        return self.reached - self.default


def draw(
    path: Place | AnyPath,
    points: Sequence[Point],
    *,
    scheme: str = "mimetic",
    score: str = "accuracy %",
    ours: str = "ours",
) -> list[AnyPath]:
    """Draw the gain of a scheme over the default's score: one marker per source, ours filled.

    Sources that begin with `ours` have filled markers; `score` is a unit.
    """
    if not points:
        raise InputError("there is no point to draw")
    sources = list(dict.fromkeys(point.source for point in points))
    styles = {
        source: (
            style.COLORS[number % len(style.COLORS)],
            style.MARKERS[number % len(style.MARKERS)],
        )
        for number, source in enumerate(sources)
    }
    names = list(dict.fromkeys(point.panel for point in points))
    with style.panels(len(names), 3.0, sharey=False) as (figure, panels):
        shown: dict[str, Any] = {}
        for axes, panel in zip(panels, names, strict=True):
            axes.axhline(0, color="#777777", linewidth=0.8)
            for source, (color, marker) in styles.items():
                chosen = [p for p in points if (p.panel, p.source) == (panel, source)]
                if not chosen:
                    continue
                shown[source] = axes.errorbar(
                    [point.default for point in chosen],
                    [point.gain for point in chosen],
                    [point.sd or 0.0 for point in chosen],
                    color=color,
                    marker=marker,
                    markerfacecolor=color if source.startswith(ours) else "white",
                    markersize=5,
                    linestyle="",
                    elinewidth=0.8,
                )
            axes.margins(0.08, 0.12)
            axes.set_title(panel)
            axes.set_xlabel(f"{score} of the default")
            style.tidy(axes)
        panels[0].set_ylabel(f"gain of {scheme} (points)")
        figure.legend(shown.values(), shown, loc="outside upper center", ncols=3, frameon=False)
        header = ["panel", "source", "setting", "default", "reached", "gain", "sd", "n"]
        rows = [
            [p.panel, p.source, p.setting, p.default, p.reached, p.gain, p.sd, p.n or None]
            for p in points
        ]
        return style.write(figure, path, header, rows)
