"""Several numbers of each arm side by side, such as the score at several lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mimetic_jax.analysis import style
from mimetic_jax.train.report import ArmResult
from mimetic_jax.train.store.files import AnyPath


def draw(
    path: AnyPath, results: Sequence[ArmResult], *, numbers: Mapping[str, str]
) -> list[AnyPath]:
    """Draw a line per arm, mean ± sd over seeds, and a panel per number.

    A number is "" for the score, or what `ArmResult.at` takes. A hollow dot is the mean of some
    seeds only, as the others never reached the goal. Of an arm in several rows the first counts.
    """
    arms: dict[str, ArmResult] = {}
    for result in results:
        arms.setdefault(result.arm, result)
    rows: list[list[object]] = []
    with style.panels(len(numbers), 0.6 + 0.16 * len(arms), alone=style.PAGE) as (figure, panels):
        for axes, (label, number) in zip(panels, numbers.items(), strict=True):
            for place, (name, arm) in enumerate(arms.items()):
                found = arm.at(number) if number else arm
                some = {"markerfacecolor": "white"} if len(found.runs) < len(arm.runs) else {}
                if found.runs:
                    axes.errorbar(
                        *(found.mean, place),
                        xerr=found.sd or 0.0,
                        marker="o",
                        capsize=2,
                        color=style.COLORS[0],
                        **some,
                    )
                    rows.append([name, label, found.mean, found.sd, len(found.runs)])
                else:
                    rows.append([name, label, None, None, 0])
            axes.set_xlabel(label)
            style.tidy(axes)
        panels[0].set_yticks(range(len(arms)), labels=list(arms))
        panels[0].invert_yaxis()
        return style.write(figure, path, ["arm", "number", "mean", "sd", "n"], rows)
