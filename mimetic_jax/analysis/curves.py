"""Learning curves of comparisons: the score of each arm per training step.

    python -m mimetic_jax.analysis.curves WORKDIR... --png=FILE

prints the table of each workdir and draws them side by side, one panel per workdir.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from mimetic_jax.errors import InputError
from mimetic_jax.train.report import BASELINES, ArmResult, table
from mimetic_jax.train.tasks.task import score_of
from mimetic_jax.train.workdir.paths import AnyPath, as_path
from mimetic_jax.train.workdir.runs import Run

# The palette of Okabe and Ito, which color-blind readers can tell apart. Black and orange are
# reserved for the baselines; yellow is left out, too pale for a line on white.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")
_BASELINE_STYLES: dict[str, dict[str, Any]] = dict(
    zip(
        BASELINES,
        ({"color": "#000000", "linestyle": ":"}, {"color": "#E69F00", "linestyle": "--"}),
        strict=True,
    )
)


def read(workdir: AnyPath) -> tuple[str, list[ArmResult]]:
    """The name of a workdir's comparison and the results of its finished runs, arm by arm.

    Raises:
        InputError: there is no comparison in the workdir, or none of its runs is finished.
    """
    path = workdir / "config.json"
    if not path.exists():
        raise InputError(f"no comparison in {workdir}: config.json is missing")
    record = json.loads(path.read_text())
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
    """Draw the learning curves of comparisons as PNG, one panel per workdir.

    Lines are means over the seeds of finished runs; bands reach one standard deviation to either
    side.

    Args:
        workdirs: of comparisons.
        path: of the picture.

    Returns:
        A line with the path.

    Raises:
        InputError: a workdir has no finished run, or matplotlib isn't installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise InputError("drawing needs matplotlib: pip install matplotlib") from error
    comparisons = [read(workdir) for workdir in workdirs]
    layout = ConstrainedLayoutEngine(w_pad=0.1)  # inches, so that labels keep clear of panels
    figure = Figure(figsize=(4.6 * len(comparisons), 3.3), layout=layout)
    for axes, (name, results) in zip(
        figure.subplots(1, len(comparisons), squeeze=False)[0], comparisons, strict=True
    ):
        _panel(axes, name, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        figure.savefig(file, format="png", dpi=120, pil_kwargs={"optimize": True})
    return f"learning curves drawn: {path}"


def _panel(axes: Any, name: str, results: Sequence[ArmResult]) -> None:
    colors = itertools.cycle(_COLORS)
    for result in results:
        style = _BASELINE_STYLES.get(result.arm) or {"color": next(colors)}
        steps, mean, sd = spread(result)
        label = f"{result.arm} (n = {len(result.reached)})"
        axes.plot(steps, mean, linewidth=1.8, label=label, **style)
        axes.fill_between(steps, mean - sd, mean + sd, color=style["color"], alpha=0.2, linewidth=0)
    score = results[0].score
    axes.set_title(f"{name}, mean ± sd over seeds", fontsize=10)
    axes.set_xlabel("training step")
    axes.set_ylabel(score.label if score.higher else f"{score.label} (lower is better)")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; bad input is one line on stderr and exit status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m mimetic_jax.analysis.curves",
        description="Print the tables of comparisons and draw their learning curves side by side.",
    )
    parser.add_argument("workdirs", nargs="+", metavar="WORKDIR", help="a folder or gs://BUCKET/…")
    parser.add_argument("--png", required=True, metavar="FILE", help="the picture to write")
    options = parser.parse_args(arguments)
    try:
        workdirs = [as_path(workdir) for workdir in options.workdirs]
        tables = [f"{name}\n\n{table(results)}\n" for name, results in map(read, workdirs)]
        drawn = draw(workdirs, as_path(options.png))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(*tables, drawn, sep="\n")


if __name__ == "__main__":
    main()
