"""Stable rank per layer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.rank import StableRanks
from mimetic_jax.train.store.places import AnyPath


def draw(path: AnyPath, ranks: Mapping[str, StableRanks]) -> list[AnyPath]:
    """Draw the stable rank of what enters each block, mean ± sd over examples, beside its bound.

    Args:
        path: of the files, without their suffix.
        ranks: per label, from `analysis.rank.stable_ranks`.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: if matplotlib isn't installed.

    Reference: Structured Initialization for Vision Transformers, remark 1.
    """
    rows = []
    with style.canvas(style.COLUMN, 2.6) as figure:
        axes = figure.subplots()
        bounds = set()
        for label, line in style.line_styles(ranks).items():
            found = ranks[label]
            layers = np.arange(1, len(found.bounds) + 1)
            mean, sd = found.ranks.mean(1), found.ranks.std(1)
            axes.plot(layers, mean, label=label, **line)
            low = np.maximum(mean - sd, 1)  # no stable rank is below 1
            axes.fill_between(layers, low, mean + sd, color=line["color"], alpha=0.2, linewidth=0)
            bounds.add(tuple(found.bounds.tolist()))
            rows += [
                [label, layer, mean[layer - 1], sd[layer - 1], found.bounds[layer - 1]]
                for layer in layers.tolist()
            ]
        for bound in sorted(bounds):
            dashes = {"color": "#777777", "linewidth": 0.8, "dashes": (6, 2)}
            axes.plot(range(1, len(bound) + 1), bound, **dashes)
            axes.annotate(
                "min(D, N)", (1, bound[0]), (0, -8), textcoords="offset points", color="#555555"
            )
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.9)
        highest = axes.get_ylim()[1]
        ticks = [digit * 10**power for power in range(4) for digit in (1, 2, 5)]
        axes.set_yticks([tick for tick in ticks if tick < highest])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(axes.yaxis.get_major_locator())
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("layer")
        axes.set_ylabel(r"stable rank of its input, $\Sigma\sigma^2 / \sigma_1^2$")
        style.tidy(axes)
        figure.legend(loc="outside upper center", ncols=3, frameon=False)
        return style.write(figure, path, ["label", "layer", "mean", "sd", "min(D, N)"], rows)
