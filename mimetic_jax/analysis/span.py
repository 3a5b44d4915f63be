"""How many times the filters of a depthwise layer span all filters of their size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.train.store.files import AnyPath


def impulse_subsets(seed: int, width: int, size: int, draws: int) -> np.ndarray:
    """M of `width` random impulse filters, per draw: the smallest count of a position.

    Its mean for 256 filters is 20.8, 4.5 and 0.3 with sizes 3, 5 and 8.

    Reference: Structured Initialization for Vision Transformers, corollary 2 and figure 2.
    """
    cells = np.random.default_rng(seed).integers(size**2, size=(draws, width))
    return np.stack([(cells == cell).sum(1) for cell in range(size**2)]).min(0)


def draw(
    path: AnyPath,
    *,
    widths: Sequence[int] = (256, 512),
    sizes: Sequence[int] = (3, 5, 8),
    draws: int = 1000,
) -> list[AnyPath]:
    """Draw M, the number of disjoint subsets of full rank f², over f: a panel per width.

    Random filters have ⌊d / f²⌋, impulse filters the smallest count of a position (mean ± sd over
    draws). Box filters are one filter d times: d subsets of rank 1, and none that spans all filters
    of a size above 1.

    Reference: Structured Initialization for Vision Transformers, proposition 1 and figure 2.
    """
    rows: list[list[object]] = []
    with style.panels(len(widths), 2.2) as (figure, panels):
        for axes, width in zip(panels, widths, strict=True):
            counts = [impulse_subsets(size, width, size, draws) for size in sizes]
            kinds = {
                "random": ([width // size**2 for size in sizes], [0.0] * len(sizes)),
                "impulse": ([m.mean() for m in counts], [m.std(ddof=1) for m in counts]),
                "box": ([width if size == 1 else 0 for size in sizes], [0.0] * len(sizes)),
            }
            for number, (kind, (means, sds)) in enumerate(kinds.items()):
                places = np.arange(len(sizes)) + 0.28 * (number - 1)
                bars = axes.bar(places, means, 0.26, label=kind, color=style.COLORS[number])
                if kind == "impulse":
                    axes.errorbar(places, means, sds, fmt="none", color="black", linewidth=0.8)
                texts = [_short(mean) for mean in means]
                padding = 6 if kind == "impulse" else 2  # above the error bars
                axes.bar_label(bars, texts, padding=padding, fontsize=7)
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
