"""The papers' figures, drawn from networks and results: a function per kind of figure.

Each function takes PATH first, without a suffix, writes PATH.png and PATH.csv, the plotted numbers
with a header and one observation per line, and returns the two paths. It raises InputError if
matplotlib isn't installed. Layers count from 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from mimetic_jax.analysis import (
    attention,
    curves,
    offsets,
    population,
    products,
    reachable,
    style,
)
from mimetic_jax.base.errors import InputError
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.verdicts import ArmResult

_DASHES = ("--", "-.", ":")

Lines = dict[str, list[tuple[float, ArmResult]]]


def sweep(
    path: AnyPath,
    results: Sequence[ArmResult],
    *,
    label: str,
    series: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None,
    panels: Mapping[str, Mapping[str, float]] | None = None,
    lines: Collection[str] = (),
    log: bool = False,
) -> list[AnyPath]:
    """Draw the score over a number that runs differ in, mean ± sd over seeds.

    Args:
        series: the number of each arm, per panel and line: {panel: {line: {arm: number}}}.
        panels: or the number of each row, per panel: {panel: {row: number}}; arms are the lines.
        lines: arms without a number, drawn as horizontal lines.

    Reference: Mimetic Initialization of Self-Attention Layers, figures 4, 6 and 10; Mimetic
    Initialization of MLPs, figures 2 and 4.
    """
    boards = _of_rows(results, panels or {})
    boards |= {title: _of_arms(results, own) for title, own in (series or {}).items()}
    boards = {title: by_name for title, by_name in boards.items() if by_name}
    if not boards:
        names = ", ".join(f"{result.row} {result.arm}".strip() for result in results)
        raise InputError(f"none of these has a number for {label}: {names}")
    flat = [result for result in results if result.arm in lines]
    rows: list[list[object]] = []
    with style.panels(len(boards), 2.4) as (figure, axes_of):
        for axes, (title, by_name) in zip(axes_of, boards.items(), strict=True):
            styles = style.line_styles([*by_name, *(result.arm for result in flat)])
            for number, (name, points) in enumerate(by_name.items()):
                points.sort(key=lambda point: point[0])
                x, y, sd = zip(*((x, r.mean, r.sd or 0.0) for x, r in points), strict=True)
                marker = style.MARKERS[number % len(style.MARKERS)]
                axes.errorbar(x, y, sd, marker=marker, capsize=2, label=name, **styles[name])
                rows += [[title, name, x, r.mean, r.sd, len(r.reached)] for x, r in points]
            for number, result in enumerate(flat):
                # Dashed, as there may be more lines than colors.
                dashes = {"linestyle": _DASHES[number % len(_DASHES)]}
                axes.axhline(result.mean, label=result.arm, **dashes | styles[result.arm])
                rows.append([title, result.arm, None, result.mean, result.sd, len(result.reached)])
            axes.set_title(title)
            axes.set_xlabel(label)
            style.tidy(axes)
            if log:
                numbers = sorted({x for points in by_name.values() for x, _ in points})
                axes.set_xscale("log")
                axes.set_xticks(numbers, labels=[f"{x:g}" for x in numbers])
                axes.minorticks_off()
        style.legend(figure)
        axes_of[0].set_ylabel(results[0].score.label)
        return style.write(figure, path, ["panel", "series", "x", "mean", "sd", "n"], rows)


def _of_arms(results: Sequence[ArmResult], series: Mapping[str, Mapping[str, float]]) -> Lines:
    by_name: Lines = defaultdict(list)
    for name, numbers in series.items():
        for result in results:
            if result.arm in numbers:
                by_name[name].append((numbers[result.arm], result))
    return by_name


def _of_rows(
    results: Sequence[ArmResult], panels: Mapping[str, Mapping[str, float]]
) -> dict[str, Lines]:
    boards: dict[str, Lines] = {title: defaultdict(list) for title in panels}
    for title, numbers in panels.items():
        for result in results:
            if result.row in numbers:
                boards[title][result.arm].append((numbers[result.row], result))
    return boards


DRAW: dict[str, Callable[..., list[AnyPath]]] = {
    "products": products.draw,
    "attention_maps": attention.draw,
    "reachable": reachable.draw,
    "impulse_maps": offsets.draw,
    "covariance": population.draw,
    "curves": curves.draw,
    "sweep": sweep,
}
"""Functions by the names that `papers` gives them."""
