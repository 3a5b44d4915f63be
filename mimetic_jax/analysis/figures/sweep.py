"""The score over a number that arms differ in, such as γ, b, or the share of the data."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from mimetic_jax.analysis import style
from mimetic_jax.errors import InputError
from mimetic_jax.train.report import ArmResult
from mimetic_jax.train.workdir.paths import AnyPath

NUMBER_AT_END = r"^(?P<series>.*)_(?P<x>-?\d+(\.\d+)?)$"


def draw(
    path: AnyPath,
    results: Sequence[ArmResult],
    *,
    label: str,
    pattern: str = NUMBER_AT_END,
    factor: float = 1.0,
) -> list[AnyPath]:
    """Draw the score over the number in the arms' names, mean ± sd over seeds.

    Results without such a number are horizontal lines.

    Args:
        path: of the files, without their suffix.
        results: of finished runs.
        label: of the horizontal axis.
        pattern: regular expression, searched in "ROW ARM", or in the arm where results have no
            row. Its group `x` is the number; its group `series`, the arm unless there is one, the
            name of the line.
        factor: of the number: 0.01 where arms have percent.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: if no run is finished, no name has a number, or matplotlib isn't installed.

    Reference: Mimetic Initialization of Self-Attention Layers, figures 4 and 6; Mimetic
    Initialization of MLPs, figures 2 and 4.
    """
    found: dict[str, list[tuple[float, ArmResult]]] = defaultdict(list)
    flat = []
    finished = style.finished(results)
    for result in finished:
        match = re.search(pattern, f"{result.row} {result.arm}".strip())
        if match is None:
            flat.append(result)
            continue
        series = match.groupdict().get("series") or result.arm
        found[series].append((factor * float(match["x"]), result))
    if not found:
        names = ", ".join(result.arm for result in finished)
        raise InputError(f"no result has a number in its name by {pattern!r}: {names}")
    rows: list[list[object]] = []
    with style.canvas(style.COLUMN, 2.4) as figure:
        axes = figure.subplots()
        lines = style.line_styles([*found, *(result.arm for result in flat)])
        for number, (series, points) in enumerate(found.items()):
            points.sort(key=lambda point: point[0])
            x, y, sd = zip(*((x, r.mean, r.sd or 0.0) for x, r in points), strict=True)
            marker = style.MARKERS[number % len(style.MARKERS)]
            axes.errorbar(x, y, sd, marker=marker, capsize=2, label=series, **lines[series])
            rows += [[series, x, r.mean, r.sd, len(r.reached)] for x, r in points]
        for result in flat:
            axes.axhline(result.mean, label=result.arm, **lines[result.arm])
            rows.append([result.arm, None, result.mean, result.sd, len(result.reached)])
        axes.set_xlabel(label)
        axes.set_ylabel(finished[0].score.label)
        style.tidy(axes)
        if len(found) + len(flat) > 1:
            axes.legend(frameon=False)
        return style.write(figure, path, ["series", "x", "mean", "sd", "n"], rows)
