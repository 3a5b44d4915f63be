"""The score over α and β."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.base.errors import InputError
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.verdicts import ArmResult

_PAIRS = {"vo": "$W_V W_{out}$", "qk": "$W_Q W_K^T$"}


def draw(
    path: AnyPath,
    results: Sequence[ArmResult],
    *,
    panels: Mapping[str, Mapping[str, tuple[float, float]]],
) -> list[AnyPath]:
    """Draw the mean score over α and β by arm: a panel per pair of matrices, "vo" and "qk".

    Both panels share one color scale, whose bright end is the better one. Cells without a finished
    run stay empty. The means of other arms are written above.

    Reference: Mimetic Initialization of Self-Attention Layers, figure 10.
    """
    cells: dict[str, dict[tuple[float, float], ArmResult]] = {}
    rows: list[list[object]] = []
    above = []
    for result in results:
        own = {name: arms[result.arm] for name, arms in panels.items() if result.arm in arms}
        numbers = result.mean, result.sd, len(result.reached)
        for name, at in own.items():
            cells.setdefault(name, {})[at] = result
            rows.append([result.arm, name, *at, *numbers])
        if not own:
            above.append(f"{result.arm} {_shown(result)}")
            rows.append([result.arm, "", "", "", *numbers])
    if not cells:
        raise InputError("no arm of the grid is finished")
    chosen = [name for name in _PAIRS if name in cells]
    means = [result.mean for name in chosen for result in cells[name].values()]
    score = results[0].score
    low, high = (min(means), max(means)) if score.higher else (max(means), min(means))
    with style.canvas(style.PAGE if len(chosen) > 1 else style.COLUMN + 0.4, 2.9) as figure:
        axes_of = figure.subplots(1, len(chosen), squeeze=False)[0]
        for axes, name in zip(axes_of, chosen, strict=True):
            alphas, betas = (sorted({at[axis] for at in cells[name]}) for axis in (0, 1))
            table = np.full((len(alphas), len(betas)), np.nan)
            for (a, b), result in cells[name].items():
                at = alphas.index(a), betas.index(b)
                table[at] = result.mean
                dark = abs(result.mean - low) < abs(result.mean - high)
                color = "white" if dark else "black"
                axes.text(*at[::-1], _shown(result), ha="center", va="center", color=color)
            image = axes.imshow(
                table,
                cmap="viridis" if score.higher else "viridis_r",
                vmin=min(means),
                vmax=max(means),
                origin="lower",
            )
            axes.set_xticks(range(len(betas)), [f"{b:g}" for b in betas])
            axes.set_yticks(range(len(alphas)), [f"{a:g}" for a in alphas])
            axes.set_xlabel(r"$\beta$")
            axes.set_ylabel(r"$\alpha$")
            axes.set_title(_PAIRS[name])
        figure.colorbar(image, ax=axes_of, label=score.label, pad=0.01)
        if above:
            figure.suptitle(", ".join(above), fontsize="medium")
        return style.write(figure, path, ["arm", "pair", "alpha", "beta", "mean", "sd", "n"], rows)


def _shown(result: ArmResult) -> str:
    """The mean with a digit less than in tables, so that it fits in a cell."""
    return f"{result.mean:.{result.score.digits - 1}f}"
