"""The score over α and β."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.errors import InputError
from mimetic_jax.train.report import ArmResult
from mimetic_jax.train.workdir.paths import AnyPath

_PAIRS = {"vo": "$W_V W_{out}$", "qk": "$W_Q W_K^T$"}


def draw(path: AnyPath, results: Sequence[ArmResult]) -> list[AnyPath]:
    """Draw the mean score of the arms vo_A_B and qk_A_B, α = A/100 and β = B/100: a panel a pair.

    Both panels share one color scale. Cells without a finished run stay empty.

    Args:
        path: of the files, without their suffix.
        results: of finished runs; other arms are left out.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: if no such arm is finished, or matplotlib isn't installed.

    Reference: Mimetic Initialization of Self-Attention Layers, figure 10.
    """
    cells: dict[str, dict[tuple[int, int], ArmResult]] = {}
    for result in style.finished(results):
        if match := re.fullmatch(r"(vo|qk)_(\d+)_(\d+)", result.arm):
            pair = cells.setdefault(match[1], {})
            pair[int(match[2]), int(match[3])] = result
    if not cells:
        raise InputError("no arm of a grid is finished: they are named vo_A_B and qk_A_B")
    chosen = [name for name in _PAIRS if name in cells]
    means = [result.mean for name in chosen for result in cells[name].values()]
    rows: list[list[object]] = []
    with style.canvas(style.PAGE if len(chosen) > 1 else style.COLUMN + 0.4, 2.9) as figure:
        panels = figure.subplots(1, len(chosen), squeeze=False)[0]
        for axes, name in zip(panels, chosen, strict=True):
            alphas, betas = (sorted({at[axis] for at in cells[name]}) for axis in (0, 1))
            table = np.full((len(alphas), len(betas)), np.nan)
            for (a, b), result in sorted(cells[name].items()):
                at = alphas.index(a), betas.index(b)
                table[at] = result.mean
                dark = result.mean < (min(means) + max(means)) / 2
                color = "white" if dark else "black"
                axes.text(*at[::-1], f"{result.mean:.1f}", ha="center", va="center", color=color)
                rows.append([name, a / 100, b / 100, result.mean, result.sd, len(result.reached)])
            image = axes.imshow(
                table, cmap="viridis", vmin=min(means), vmax=max(means), origin="lower"
            )
            axes.set_xticks(range(len(betas)), [f"{b / 100:g}" for b in betas])
            axes.set_yticks(range(len(alphas)), [f"{a / 100:g}" for a in alphas])
            axes.set_xlabel(r"$\beta$" + (" (of $-\\beta I$)" if name == "vo" else ""))
            axes.set_ylabel(r"$\alpha$")
            axes.set_title(_PAIRS[name])
        figure.colorbar(image, ax=panels, label=style.finished(results)[0].score.label, pad=0.01)
        return style.write(figure, path, ["pair", "alpha", "beta", "mean", "sd", "n"], rows)
