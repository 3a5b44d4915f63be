"""Learning curves of comparisons: the score of each arm per training step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.base.errors import InputError
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.report import Results
from mimetic_jax.train.store.claim import Claim
from mimetic_jax.train.store.files import AnyPath, path_of
from mimetic_jax.train.verdicts import ArmResult

_LARGER = {"font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "legend.fontsize": 9}
"""A picture for the screen, wider than a column."""


def read(workdir: AnyPath | str) -> tuple[Mapping[str, Any], list[ArmResult]]:
    """Return the configuration of a workdir's comparison, and the results of its finished runs by
    arm."""
    folder = path_of(workdir)
    claim = Claim.of(folder)
    if not (results := Results.of(folder, claim).arms):
        raise InputError(f"no finished run in {folder}: nothing to draw")
    return claim.config, list(results.values())


def spread(result: ArmResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and standard deviation of an arm's score over seeds, per evaluated step.

    >>> from mimetic_jax.train.record import Record
    >>> curves = [((0, 9.0), (10, 70.0)), ((0, 11.0), (10, 74.0))]
    >>> runs = {
    ...     seed: Record(arm="default", seed=seed, score="accuracy", value=70, curve=curve)
    ...     for seed, curve in enumerate(curves)
    ... }
    >>> steps, mean, sd = spread(ArmResult("default", runs))
    >>> steps.tolist(), mean.tolist(), sd.round(2).tolist()
    ([0, 10], [10.0, 72.0], [1.41, 2.83])

    Returns:
        The steps that all seeds evaluated [S]; the mean score [S]; its standard deviation [S], zero
        for one seed.
    """
    curves = [dict(record.curve) for record in result.runs.values()]
    steps = sorted(set.intersection(*map(set, curves)))
    scores = np.array([[curve[step] for step in steps] for curve in curves])
    sd = scores.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(steps))
    return np.array(steps), scores.mean(axis=0), sd


def analyze(comparison: Comparison, workdir: AnyPath) -> str:
    """Draw the learning curves of a workdir: WORKDIR/curves.png and curves.csv."""
    comparison.runs(workdir).checked_claim()
    return f"learning curves drawn: {draw_workdir(workdir)[0]}"


def draw_workdir(workdir: AnyPath) -> list[AnyPath]:
    """Draw the finished runs of a workdir for the screen: curves.png and curves.csv."""
    config, results = read(workdir)
    with style.canvas(6.0, 3.3 + 0.19 * len(results), pad=0.1, **_LARGER) as figure:
        panel(figure.subplots(), f"{config['name']}, mean ± sd over seeds", results)
        return style.write(figure, workdir / "curves", _HEADER, _rows(results))


def draw(
    path: AnyPath,
    results: Sequence[ArmResult],
    *,
    epochs: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
) -> list[AnyPath]:
    """Draw the score over training, mean ± sd over seeds: a panel per row of the results.

    The axis has epochs in rows of which `epochs` has the steps of one, else steps. `labels` are
    names of arms for readers; an arm called "default" there has the style of the default.

    Reference: Mimetic Initialization of Self-Attention Layers, figure 5; Structured Initialization
    for Vision Transformers, figure 4; Mimetic Initialization of MLPs, figure 3.
    """
    names = list(dict.fromkeys(result.row for result in results))
    most = max(Counter(result.row for result in results).values())
    alike = len({result.score for result in results}) == 1
    height = 2.2 + 0.15 * most
    with style.panels(len(names), height, columns=2, alike=alike) as (figure, panels):
        rows: list[list[object]] = []
        for axes, name in zip(panels, names, strict=True):
            chosen = [result for result in results if result.row == name]
            epoch = (epochs or {}).get(name, 0.0)
            panel(axes, name, chosen, epoch, labels or {})
            rows += _rows(chosen, epoch)
        return style.write(figure, path, _HEADER, rows)


_HEADER = ["row", "arm", "step", "epoch", "mean", "sd", "n"]


def _rows(results: Sequence[ArmResult], epoch: float = 0.0) -> Iterator[list[object]]:
    for result in results:
        for step, mean, sd in zip(*spread(result), strict=True):
            when = [step, step / epoch if epoch else ""]
            yield [result.row, result.arm, *when, mean, sd, len(result.reached)]


def panel(
    axes: Any,
    title: str,
    results: Sequence[ArmResult],
    epoch: float = 0.0,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Draw the curves of arms into one panel: means as lines, standard deviations as bands.

    With the steps of an `epoch` its axis has epochs. One test alone is a point. Scores of which
    lower is better begin at the first test after training began: before it a perplexity, as large
    as the vocabulary, would leave no height for the rest.
    """
    score = results[0].score
    names = {result.arm: labels.get(result.arm, result.arm) for result in results}
    lines = style.line_styles(names.values())
    for result in results:
        line = lines[names[result.arm]]
        steps, mean, sd = spread(result)
        steps, mean, sd = (of[steps >= (not score.higher)] for of in (steps, mean, sd))
        x = steps / (epoch or 1)
        point = {"marker": "o"} if len(x) == 1 else {}
        label = f"{names[result.arm]} (n = {len(result.reached)})"
        axes.plot(x, mean, label=label, **line, **point)
        if point:
            axes.errorbar(x, mean, sd, fmt="none", ecolor=line["color"])
        axes.fill_between(x, mean - sd, mean + sd, color=line["color"], alpha=0.2, linewidth=0)
    axes.set_title(title)
    axes.set_xlabel("epoch" if epoch else "training step")
    axes.xaxis.get_major_locator().set_params(integer=not epoch)
    axes.set_ylabel(score.label if score.higher else f"{score.label} (lower is better)")
    style.tidy(axes)
    # Below the axis and its label, as bands fill the panel; the pad is in heights of the type.
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=3.5)
