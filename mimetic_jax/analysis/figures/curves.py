"""Learning curves of arms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from mimetic_jax.analysis import style
from mimetic_jax.analysis.curves import panel, spread
from mimetic_jax.train.report import ArmResult
from mimetic_jax.train.store.places import AnyPath


def draw(
    path: AnyPath,
    results: Sequence[ArmResult],
    *,
    title: str = "",
    epochs: Mapping[str, float] | None = None,
    since: int = 0,
) -> list[AnyPath]:
    """Draw the score over training, mean ± sd over seeds: a panel per row of the results.

    Args:
        path: of the files, without their suffix.
        results: of finished runs.
        title: above a panel whose row has no name.
        epochs: steps of one epoch, by row; other rows have an axis of steps.
        since: the first step to draw; scores before training are far from all that follow.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: if no run is finished, or matplotlib isn't installed.

    Reference: Mimetic Initialization of Self-Attention Layers, figure 5; Structured Initialization
    for Vision Transformers, figure 4; Mimetic Initialization of MLPs, figure 3.
    """
    finished = [_since(since, result) for result in style.finished(results)]
    names = list(dict.fromkeys(result.row for result in finished))
    columns = min(2, len(names))
    lines = -(-len(names) // columns)
    rows: list[list[object]] = []
    width = style.COLUMN if columns == 1 else style.PAGE
    with style.canvas(width, 2.5 * lines) as figure:
        panels = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
        for axes in panels[len(names) :]:
            axes.axis("off")
        for axes, name in zip(panels, names, strict=False):
            chosen = [result for result in finished if result.row == name]
            epoch = (epochs or {}).get(name, 0.0)
            panel(axes, name or title, chosen, epoch)
            for result in chosen:
                for step, mean, sd in zip(*spread(result), strict=True):
                    when = [step, step / epoch if epoch else ""]
                    rows.append([name, result.arm, *when, mean, sd, len(result.reached)])
        header = ["row", "arm", "step", "epoch", "mean", "sd", "n"]
        return style.write(figure, path, header, rows)


def _since(first: int, result: ArmResult) -> ArmResult:
    curve = {
        seed: [(step, score) for step, score in of if step >= first]
        for seed, of in result.curve.items()
    }
    return dataclasses.replace(result, curve=curve)
