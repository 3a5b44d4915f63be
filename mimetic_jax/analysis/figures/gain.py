"""What a scheme gains, over how strong the default is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from mimetic_jax.analysis import style
from mimetic_jax.errors import InputError
from mimetic_jax.train.workdir.paths import AnyPath


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
    """

    source: str
    setting: str
    default: float
    reached: float
    sd: float | None = None
    n: int = 0

    @property
    def gain(self) -> float:
        """The difference of the two."""
        return self.reached - self.default


def draw(
    path: AnyPath,
    points: Sequence[Point],
    *,
    scheme: str = "mimetic",
    score: str = "accuracy %",
    ours: str = "ours",
) -> list[AnyPath]:
    """Draw the gain of a scheme over the default's score: one marker per source, ours filled.

    Args:
        path: of the files, without their suffix.
        points: published ones and ours.
        scheme: what gains.
        score: its unit.
        ours: the source whose markers are filled.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: if there is no point, or matplotlib isn't installed.
    """
    if not points:
        raise InputError("there is no point to draw")
    sources = list(dict.fromkeys(point.source for point in points))
    with style.canvas(style.PAGE, 3.4) as figure:
        axes = figure.subplots()
        axes.axhline(0, color="#777777", linewidth=0.8)
        for number, source in enumerate(sources):
            chosen = [point for point in points if point.source == source]
            color = style.COLORS[number % len(style.COLORS)]
            axes.errorbar(
                [point.default for point in chosen],
                [point.gain for point in chosen],
                [point.sd or 0.0 for point in chosen],
                color=color,
                marker=style.MARKERS[number % len(style.MARKERS)],
                markerfacecolor=color if source == ours else "white",
                markersize=5,
                linestyle="",
                elinewidth=0.8,
                label=source,
            )
        axes.margins(0.08, 0.12)
        axes.set_xlabel(f"{score} of the default initialization")
        axes.set_ylabel(f"gain of {scheme} (points)")
        style.tidy(axes)
        figure.legend(loc="outside upper center", ncols=3, frameon=False)
        _name(figure, axes, points)
        header = ["source", "setting", "default", "reached", "gain", "sd", "n"]
        rows = [
            [p.source, p.setting, p.default, p.reached, p.gain, p.sd, p.n or None] for p in points
        ]
        return style.write(figure, path, header, rows)


_CLEAR = 4
"""Pixels between a name and the middle of any marker."""

# Where the name of a point may stand: offset in points, alignments.
_PLACES = (
    ((5, 0), "left", "center"),
    ((-5, 0), "right", "center"),
    ((0, 5), "center", "bottom"),
    ((0, -5), "center", "top"),
    ((4, 6), "left", "bottom"),
    ((4, -6), "left", "top"),
    ((-4, 6), "right", "bottom"),
    ((-4, -6), "right", "top"),
    ((8, 14), "left", "bottom"),
    ((8, -14), "left", "top"),
)


def _name(figure: Any, axes: Any, points: Sequence[Point]) -> None:
    """Write each setting where it covers no point and no other setting, as far as possible."""
    figure.draw_without_rendering()  # places are known from now on
    markers = axes.transData.transform([(point.default, point.gain) for point in points])
    frame = axes.get_window_extent()
    taken: list[Any] = []
    for point in points:
        tried: list[Any] = []
        for offset, horizontal, vertical in _PLACES:
            text = axes.annotate(
                point.setting,
                (point.default, point.gain),
                offset,
                textcoords="offset points",
                ha=horizontal,
                va=vertical,
            )
            text.set_in_layout(False)  # it stays inside the frame, which must not move
            box = text.get_window_extent()
            inside = frame.containsx(box.x0) and frame.containsx(box.x1)
            inside = inside and frame.containsy(box.y0) and frame.containsy(box.y1)
            near = box.padded(_CLEAR).count_contains(markers)
            covered = box.count_overlaps(taken) + near + 9 * (not inside)
            tried.append((covered, len(tried), box, text))
            if not covered:
                break
        *_, box, kept = min(tried, key=lambda attempt: attempt[:2])
        taken.append(box)
        for *_, text in tried:
            if text is not kept:
                text.remove()
