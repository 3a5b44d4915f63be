"""One style for all figures: sizes, colors and scales, and the numbers beside each picture."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.extras import need
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import AnyPath

COLUMN, PAGE = 3.3, 6.8
"""Widths in inches of a column and of a page of a paper; type is 7 points or more at these."""

DPI = 150

# The palette of Okabe and Ito, which color-blind readers can tell apart. Black and orange are
# reserved for the baselines; yellow is left out, too pale for a line on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")
_BASELINE_STYLES: dict[str, dict[str, Any]] = {
    "default": {"color": "#000000", "linestyle": ":"},
    "norm_matched_mimetic": {"color": "#E69F00", "linestyle": "--"},
}
MARKERS = "osD^vPX"

_SETTINGS = {
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.labelsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
}


@contextlib.contextmanager
def canvas(width: float, height: float, pad: float = 0.02, **settings: Any) -> Iterator[Any]:
    """Yield a matplotlib figure in this style; draw and save it inside the block.

    Sizes are in inches, `pad` that between panels; settings replace those of the style.
    """
    need("drawing", "plot")
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(_SETTINGS | settings):
        layout = ConstrainedLayoutEngine(w_pad=pad, h_pad=0.02, wspace=0.02, hspace=0.02)
        yield Figure(figsize=(width, height), layout=layout)


@contextlib.contextmanager
def panels(
    count: int, height: float, *, columns: int = 0, alike: bool = True
) -> Iterator[tuple[Any, list[Any]]]:
    """Panels of lines or points, so many `columns` side by side on the width of a page.

    `height` is that of a row of them, in inches. Those that are `alike` show one quantity, and have
    one scale.
    """
    columns = min(columns or count, count)
    rows = -(-count // columns)
    with canvas(PAGE if columns > 1 else COLUMN, height * rows) as figure:
        every = figure.subplots(rows, columns, sharey=alike, squeeze=False).ravel()
        for axes in every[count:]:
            axes.set_visible(False)
        yield figure, list(every[:count])


@contextlib.contextmanager
def matrices(
    rows: int, columns: int, *, most: float, beside: float, over: float = 0.0, above: float = 0.0
) -> Iterator[tuple[Any, Any]]:
    """Square panels of matrices, as large as a page allows and of a side of at most so many inches.

    The other sizes are spaces: at the left and right of all, over each row, above and below all.
    """
    side = min(most, (PAGE - beside) / columns)
    with canvas(side * columns + beside, (side + over) * rows + above) as figure:
        yield figure, figure.subplots(rows, columns, squeeze=False)


def line_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Color and dashes per arm: the baselines have their own, the others follow the palette.

    >>> line_styles(["default", "mimetic"])["mimetic"]["color"]
    '#0072B2'
    """
    colors = itertools.cycle(COLORS)
    return {name: _BASELINE_STYLES.get(name) or {"color": next(colors)} for name in names}


def legend(figure: Any) -> None:
    """Name the lines of all panels above them, each name once; nothing for a single line."""
    lines: dict[str, Any] = {}
    for axes in figure.axes:
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
            lines.setdefault(label, line)
    if len(lines) > 1:
        entry = 0.4 + 0.055 * max(map(len, lines))  # inches of a line and of its name in this type
        columns = min(3, max(1, int(figure.get_figwidth() / entry)))
        place = {"loc": "outside upper center", "ncols": columns, "frameon": False}
        figure.legend(lines.values(), lines, **place)


def tidy(axes: Any) -> None:
    """Return a panel of lines or points: light grid, no frame at the top and right."""
    axes.grid(alpha=0.3, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def limit(matrices: Iterable[np.ndarray]) -> float:
    """Return the magnitude, above 0, at which the shared color scale of several matrices ends.

    The largest half percent of all magnitudes don't pale the rest.
    """
    sizes = np.concatenate([np.abs(matrix).ravel() for matrix in matrices])
    return float(np.quantile(sizes, 0.995)) or float(sizes.max()) or 1.0


def signed(axes: Any, matrix: np.ndarray, bound: float) -> Any:
    """Return a matrix as an image from −bound (blue) over 0 (white) to bound (red)."""
    return _image(axes, matrix, cmap="RdBu_r", vmin=-bound, vmax=bound)


def positive(axes: Any, matrix: np.ndarray, top: float | None) -> Any:
    """Return a matrix of positive numbers as an image, from 0 to `top`."""
    return _image(axes, matrix, cmap="viridis", vmin=0, vmax=top)


def _image(axes: Any, matrix: np.ndarray, **options: Any) -> Any:
    axes.set_xticks([])
    axes.set_yticks([])
    return axes.imshow(matrix, interpolation="nearest", **options)


def write(
    figure: Any, path: AnyPath, header: Sequence[str], rows: Iterable[Sequence[Any]]
) -> list[AnyPath]:
    """Write a figure, inside the block of `canvas`, and its numbers: PATH.png and PATH.csv.

    The same figure gives the same bytes: nothing in the files depends on the time. Rows are one
    observation each; a matrix's entries come last, in columns that are named by their numbers.
    Floating-point numbers have six digits.
    """
    png, table = (path.parent / f"{path.name}.{suffix}" for suffix in ("png", "csv"))
    save(figure, png)
    cells = [[_shown(cell) for cell in row] for row in rows]
    entries = range(max(map(len, cells), default=0) - len(header))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[*header, *map(str, entries)], *cells])
    files.write(table, text.getvalue())
    return [png, table]


def save(figure: Any, path: AnyPath) -> None:
    """Write a figure as PNG; its folder appears if need be."""
    png = io.BytesIO()
    options = {"metadata": {"Software": None}, "pil_kwargs": {"optimize": True}}
    figure.savefig(png, format="png", dpi=DPI, **options)
    files.write(path, png.getvalue())


def matrix_rows(labels: Sequence[Any], matrix: np.ndarray) -> Iterator[list[Any]]:
    """Yield the rows of a matrix as observations: labels, number of the row, entries."""
    for number, row in enumerate(np.asarray(matrix)):
        yield [*labels, number, *row.tolist()]


def by_layer(layers: Sequence[int], items: Sequence[Any], label: str) -> dict[int, Any]:
    """Items by the number of their layer, from 1.

    Example:
        >>> by_layer((1, 3), ["first", "second", "third"], "default")
        {1: 'first', 3: 'third'}
    """
    numbered = dict(enumerate(items, 1))
    for number in layers:
        if number not in numbered:
            raise InputError(f"{label} has layers 1 to {len(items)}: there is no layer {number}")
    return {number: numbered[number] for number in layers}


def of_depth(layers: Sequence[int], depth: int) -> str:
    """Return which layers a picture shows, if not all.

    >>> of_depth([1, 6, 12], 12), of_depth([1, 2], 2)
    ('layers 1, 6 and 12 of 12', '')
    """
    if len(layers) == depth:
        return ""
    *first, last = map(str, layers)
    return (
        f"layers {', '.join(first)} and {last} of {depth}" if first else f"layer {last} of {depth}"
    )


def _shown(cell: Any) -> Any:
    if cell is None:
        return ""
    return f"{float(cell):.6g}" if isinstance(cell, float | np.floating) else cell
