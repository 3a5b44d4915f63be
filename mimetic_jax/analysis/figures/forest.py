"""Gains over the default of many arms on several tasks, with their intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from mimetic_jax.analysis import style
from mimetic_jax.base.errors import InputError
from mimetic_jax.train.statistics import ENOUGH, Difference
from mimetic_jax.train.store.places import AnyPath, Place


@dataclasses.dataclass(frozen=True)
class Gain:
    """What an arm gains over the default of a task.

    Attributes:
        task: the panel.
        score: its unit.
        arm: the line.
        difference: to the default.
        higher: whether more is better.
    """

    task: str
    score: str
    arm: str
    difference: Difference
    higher: bool = True


def draw(path: Place | AnyPath, gains: Sequence[Gain], *, columns: int = 6) -> list[AnyPath]:
    """Draw a panel per task and a line per arm, the better to the right.

    A filled dot is a difference that holds (`Difference.side`): blue better, red worse. A hollow
    one doesn't. The interval of fewer runs than a claim takes isn't drawn: it would fill the plot.

    Args:
        path: of the files, without their suffix.
        gains: arms from above in the order in which they first appear, likewise tasks.
        columns: panels side by side.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: if there is no gain, or matplotlib isn't installed.
    """
    if not gains:
        raise InputError("there is no gain to draw: no task has runs of the default and another")
    arms = list(dict.fromkeys(gain.arm for gain in gains))
    tasks = list(dict.fromkeys((gain.task, gain.score, gain.higher) for gain in gains))
    height = 0.6 + 0.14 * len(arms)
    with style.panels(len(tasks), height, columns=columns, alone=style.PAGE) as (figure, panels):
        for axes, (task, score, higher) in zip(panels, tasks, strict=True):
            axes.axvline(0, color="#777777", linewidth=0.8)
            for gain in gains:
                if gain.task == task:
                    _draw_one(axes, gain, arms.index(gain.arm))
            axes.set_title(task)
            axes.set_xlabel(f"Δ {score}")
            style.tidy(axes)
            if not higher:
                axes.invert_xaxis()
        panels[0].set_yticks(range(len(arms)), labels=arms)
        panels[0].set_ylim(len(arms) - 0.5, -0.5)
        header = ["task", "score", "arm", "gain", "low", "high", "n", "p", "side"]
        return style.write(figure, path, header, [_row(gain) for gain in gains])


def _draw_one(axes: Any, gain: Gain, place: int) -> None:
    found, side = gain.difference, gain.difference.side(gain.higher)
    color = {1: style.COLORS[0], -1: style.COLORS[1], 0: "#777777"}[side]
    half = 0.0 if found.high is None or found.n < ENOUGH else found.high - found.mean
    axes.errorbar(
        *(found.mean, place),
        xerr=half,
        marker="o",
        color=color,
        markerfacecolor=color if side else "white",
        elinewidth=0.9,
    )


def _row(gain: Gain) -> list[Any]:
    found = gain.difference
    numbers = (found.mean, found.low, found.high, found.n, found.p, found.side(gain.higher))
    return [gain.task, gain.score, gain.arm, *numbers]
