"""How many times the filters of a depthwise layer span all filters of their size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.train.store.places import AnyPath, Place

# A filter whose part outside a span is below this fraction of it counts as inside: parameters are
# float32, and computed filters reach 1e-7.
_OUTSIDE = 1e-5


def disjoint_subsets(filters: np.ndarray) -> int:
    """M: into how many disjoint subsets that span all filters of the size they can be divided.

    Each filter goes to the first subset that it adds a dimension to. That gives the largest M for
    impulses (the smallest count of a position), for filters in general position (⌊d / f²⌋) and for
    multiples of one filter; for others M is at least this, and at most ⌊d / f²⌋.

    Args:
        filters: [f, f, d] or [n, d], one filter per column.

    Example:
        >>> impulses = np.eye(9)[:, np.arange(20) % 9]
        >>> disjoint_subsets(impulses.reshape(3, 3, 20)), disjoint_subsets(np.ones((3, 3, 20)))
        (2, 0)

    Reference: Structured Initialization for Vision Transformers, definition 1 and proposition 1:
    the filters are M-f² spanned, and replace any others where M is the rank of the input or more.
    """
    vectors = np.asarray(filters, np.float64).reshape(-1, filters.shape[-1]).T
    lengths = np.linalg.norm(vectors, axis=1)
    unfinished: list[np.ndarray] = []  # orthonormal rows that span what a subset has so far
    complete = 0
    for vector in vectors[lengths > 0] / lengths[lengths > 0, None]:
        at, direction = _first(unfinished, vector)
        if at == len(unfinished):
            unfinished.append(direction[None])
        else:
            unfinished[at] = np.concatenate([unfinished[at], direction[None]])
        if len(unfinished[at]) == len(vector):
            del unfinished[at]
            complete += 1
    return complete


def _first(spans: list[np.ndarray], vector: np.ndarray) -> tuple[int, np.ndarray]:
    """The first span without the vector, and the direction that it adds; else one more."""
    for number, span in enumerate(spans):
        rest = vector - span.T @ (span @ vector)
        rest -= span.T @ (span @ rest)  # once more: rounding grows where the rest is short
        if (length := np.linalg.norm(rest)) > _OUTSIDE:
            return number, rest / length
    return len(spans), vector


def impulse_subsets(seed: int, width: int, size: int, draws: int) -> np.ndarray:
    """M of random impulse filters, over draws: the smallest count of a position.

    Args:
        seed: of the draws.
        width: d, the number of filters.
        size: f.
        draws: how many sets of filters.

    Returns:
        [draws] integers, whose mean for d = 256 is 20.8, 4.5 and 0.3 with f = 3, 5 and 8.

    Reference: Structured Initialization for Vision Transformers, corollary 2 and figure 2.
    """
    cells = np.random.default_rng(seed).integers(size**2, size=(draws, width))
    return np.stack([(cells == cell).sum(1) for cell in range(size**2)]).min(0)


def draw(
    path: Place | AnyPath,
    *,
    widths: Sequence[int] = (256, 512),
    sizes: Sequence[int] = (3, 5, 8),
    draws: int = 1000,
) -> list[AnyPath]:
    """Draw M, the number of disjoint subsets of full rank f², over f: a panel per width.

    Random filters have ⌊d / f²⌋, impulse filters the smallest count of a position (mean ± sd over
    draws). Box filters are one filter d times: d subsets of rank 1, and none that spans all filters
    of a size above 1.

    Args:
        path: of the files, without their suffix.
        widths: values of d.
        sizes: values of f.
        draws: of the impulse filters.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: if matplotlib isn't installed.

    Reference: Structured Initialization for Vision Transformers, proposition 1 and figure 2.
    """
    rows: list[list[object]] = []
    with style.panels(len(widths), 2.2) as (figure, panels):
        for axes, width in zip(panels, widths, strict=True):
            counts = [impulse_subsets(size, width, size, draws) for size in sizes]
            kinds = {
                "random": ([width // size**2 for size in sizes], [0.0] * len(sizes)),
                "impulse": ([m.mean() for m in counts], [m.std(ddof=1) for m in counts]),
                "box": ([width * (size == 1) for size in sizes], [0.0] * len(sizes)),
            }
            for number, (kind, (means, sds)) in enumerate(kinds.items()):
                places = np.arange(len(sizes)) + 0.28 * (number - 1)
                bars = axes.bar(places, means, 0.26, label=kind, color=style.COLORS[number])
                if kind == "impulse":
                    axes.errorbar(places, means, sds, fmt="none", color="black", linewidth=0.8)
                texts = [_short(mean) for mean in means]
                axes.bar_label(bars, texts, padding=2 + 4 * (kind == "impulse"), fontsize=7)
                rows += [
                    [width, size, kind, mean, sd]
                    for size, mean, sd in zip(sizes, means, sds, strict=True)
                ]
            axes.set_xticks(range(len(sizes)), [f"{size}×{size}" for size in sizes])
            axes.set_title(f"d = {width}")
            axes.set_xlabel("filter")
            axes.margins(y=0.12)
            axes.set_ylim(bottom=0)
            style.tidy(axes)
        panels[0].set_ylabel("subsets M of full rank f²")
        style.legend(figure)
        return style.write(figure, path, ["width", "size", "filters", "subsets", "sd"], rows)


def _short(mean: float) -> str:
    return f"{mean:.1f}".removesuffix(".0").removeprefix("0") or "0"
