"""Learning curves of comparisons: the score of each arm per training step.

    python -m mimetic_jax.analysis.curves WORKDIR... --png=FILE

prints the table of each workdir and draws them side by side, one panel per workdir; what is drawn
is written as numbers to the CSV file of the same name.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.errors import InputError, reported
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.report import ArmResult, table
from mimetic_jax.train.score import SCORES
from mimetic_jax.train.workdir.documents import read_config
from mimetic_jax.train.workdir.paths import AnyPath, as_path
from mimetic_jax.train.store.runs import Run

_LARGER = {"font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "legend.fontsize": 9}
"""A picture for the screen, wider than a column."""


def read(workdir: AnyPath) -> tuple[str, list[ArmResult]]:
    """The name of a workdir's comparison and the results of its finished runs, arm by arm.

    Raises:
        InputError: there is no comparison in the workdir, or none of its runs is finished.
    """
    path = workdir / "config.json"
    if not path.exists():
        raise InputError(f"no comparison in {workdir}: config.json is missing")
    record = read_config(path)
    arms, seeds = list(record["arms"]) or ["run"], record["seeds"]
    for arm, seed in itertools.product(arms, seeds):
        if (run := Run.of(workdir, arm, seed)).finished():
            score = score_of(run.evaluations()[-1])
            results = [ArmResult.read(workdir, arm, seeds, score) for arm in arms]
            return record["name"], [result for result in results if result.reached]
    raise InputError(f"no finished run in {workdir}: nothing to draw")


def spread(result: ArmResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and standard deviation of an arm's score over seeds, per evaluated step.

    >>> curve = {0: [(0, 9.0), (10, 70.0)], 1: [(0, 11.0), (10, 74.0)]}
    >>> steps, mean, sd = spread(ArmResult("default", {0: 70.0, 1: 74.0}, curve, {0: 1.0, 1: 1.0}))
    >>> steps.tolist(), mean.tolist(), sd.round(2).tolist()
    ([0, 10], [10.0, 72.0], [1.41, 2.83])

    Args:
        result: of finished runs.

    Returns:
        The steps that all seeds evaluated [S]; the mean score [S]; its standard deviation [S], zero
        for one seed.
    """
    curves = [dict(curve) for curve in result.curve.values()]
    steps = sorted(set.intersection(*map(set, curves)))
    scores = np.array([[curve[step] for step in steps] for curve in curves])
    sd = scores.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(steps))
    return np.array(steps), scores.mean(axis=0), sd


def draw(workdirs: Sequence[AnyPath], path: AnyPath) -> str:
    """Draw the learning curves of comparisons as PNG, one panel per workdir, with a CSV beside it.

    Lines are means over the seeds of finished runs; bands reach one standard deviation to either
    side. The CSV has a row per comparison, arm and step.

    Args:
        workdirs: of comparisons.
        path: of the picture; the numbers go to the file of that name that ends in `.csv`.

    Returns:
        A line with both paths.

    Raises:
        InputError: a workdir has no finished run, or matplotlib isn't installed.
    """
    comparisons = [read(workdir) for workdir in workdirs]
    width = 4.6 * len(comparisons)
    with style.canvas(width, 3.3, pad=0.1, **_LARGER) as figure:
        for axes, (name, results) in zip(
            figure.subplots(1, len(comparisons), squeeze=False)[0], comparisons, strict=True
        ):
            panel(axes, f"{name}, mean ± sd over seeds", results)
        style.save(figure, path)
    table = path.with_suffix(".csv")
    header = ["comparison", "arm", "score", "n", "step", "mean", "sd"]
    style.write_rows(table, header, (row for found in comparisons for row in _rows(*found)))
    return f"learning curves drawn: {path}, their numbers: {table}"


def _rows(name: str, results: Sequence[ArmResult]) -> Iterator[list[Any]]:
    for result in results:
        n = len(result.reached)
        for step, mean, sd in zip(*spread(result), strict=True):
            yield [name, result.arm, result.score.label, n, step, mean, sd if n > 1 else None]


def analyze(comparison: Comparison, workdir: AnyPath) -> str:
    """Draw the learning curves of a workdir: WORKDIR/curves.png and curves.csv."""
    return draw([workdir], workdir / "curves.png")


def panel(axes: Any, title: str, results: Sequence[ArmResult], epoch: float = 0.0) -> None:
    """Draw the curves of arms into one panel: means as lines, standard deviations as bands.

    Args:
        axes: of the panel.
        title: above it.
        results: of finished runs.
        epoch: steps of one, for an axis of epochs; 0 for an axis of steps.
    """
    lines = style.line_styles(result.arm for result in results)
    for result in results:
        line = lines[result.arm]
        steps, mean, sd = spread(result)
        x = steps / (epoch or 1)
        axes.plot(x, mean, label=f"{result.arm} (n = {len(result.reached)})", **line)
        axes.fill_between(x, mean - sd, mean + sd, color=line["color"], alpha=0.2, linewidth=0)
    score = results[0].score
    axes.set_title(title)
    axes.set_xlabel("epoch" if epoch else "training step")
    axes.set_ylabel(score.label if score.higher else f"{score.label} (lower is better)")
    style.tidy(axes)
    axes.legend(frameon=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; bad input is one line on stderr and exit status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m mimetic_jax.analysis.curves",
        description="Print the tables of comparisons and draw their learning curves side by side.",
    )
    parser.add_argument("workdirs", nargs="+", metavar="WORKDIR", help="a folder or gs://BUCKET/…")
    parser.add_argument("--png", required=True, metavar="FILE", help="the picture to write")
    options = parser.parse_args(arguments)
    with reported():
        workdirs = [as_path(workdir) for workdir in options.workdirs]
        tables = [f"{name}\n\n{table(results)}\n" for name, results in map(read, workdirs)]
        drawn = draw(workdirs, as_path(options.png))
    print(*tables, drawn, sep="\n")


if __name__ == "__main__":
    main()
