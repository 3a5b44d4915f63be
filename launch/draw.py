"""Draw a figure of a paper: PNG and CSV, from formulas, networks or finished runs."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launch.runner import RowRunner
from mimetic_jax.analysis import population
from mimetic_jax.analysis.attention import attention_maps
from mimetic_jax.analysis.capture import EXAMPLES, Snapshot, snapshots
from mimetic_jax.analysis.figures import DRAW
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.tensor_files import read_file
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.files import AnyPath
from papers import FIGURES, starts_of
from papers.record import Row

_OF_NETWORKS = {
    "products": lambda model, variables, inputs: variables["params"],
    "attention_maps": attention_maps,
    "impulse_maps": attention_maps,
}
"""What figures of networks draw of each, from its model, its variables and test examples."""


def draw(
    name: str,
    runner: RowRunner,
    out: pathlib.Path,
    *,
    small: bool = False,
    heads: Mapping[str, int] | None = None,
) -> list[AnyPath]:
    """Draw a figure into the folder `out`; returns the written files.

    Its rows are those of the runner; `heads` are num_heads and num_kv_heads of the runner's file of
    pretrained weights, if it doesn't tell them.
    """
    figure, file = FIGURES[name], runner.file
    wanted = [row for row in runner.rows if not runner.lacks(row)]
    untrained = starts_of(name, small)
    if file and figure.draw != "products" and not any(row.needs for row in untrained):
        raise InputError(f"--file={file}: {name} isn't drawn from the weights of a file")
    path = out / f"{name.replace('/', '_')}{'_small' if small else ''}"
    path.parent.mkdir(parents=True, exist_ok=True)
    options, drawn = dict(figure.options), list[Any]()
    if figure.draw == "covariance":
        return list(_of_arms(path, runner, wanted))
    if file and figure.draw == "products":
        drawn = [{(label := pathlib.Path(file).stem): read_file(file)}]
        options["leaves"] = {label: heads or {}}
    elif figure.draw in _OF_NETWORKS:
        drawable = {
            (row.label, network.arm.name, network.when): network
            for row in (*wanted, *(row for row in untrained if not runner.lacks(row)))
            for network in snapshots(Comparison(runner.config(row), runner.say), runner.folder(row))
        }
        if not drawable:
            raise InputError(f"{name} needs {figure.needs}")
        drawn = _of_networks(figure.draw, drawable, options.pop("examples", EXAMPLES))
    elif figure.draw in ("curves", "sweep"):
        results = [
            result for row in wanted for result in runner.results.compared_arms(row).values()
        ]
        if not results:
            raise InputError(f"no run of {name} is finished: nothing to draw")
        drawn = [results]
        if figure.draw == "curves":
            epochs = {row.label: runner.config(row).epochs for row in wanted}
            options["epochs"] = {  # steps of one, of rows that train for a number of them
                result.row: run.steps / epochs[result.row]
                for result in results
                for run in result.runs.values()
                if epochs[result.row]
            }
    return DRAW[figure.draw](path, *drawn, **options)


def _of_arms(path: pathlib.Path, runner: RowRunner, wanted: Sequence[Row]) -> Iterator[AnyPath]:
    """Draw the population of each arm that is trained."""
    drawn = 0
    for row in wanted:
        comparison = Comparison(runner.config(row), runner.say)
        for name in runner.arms(row):
            path_of_arm = path.with_name(f"{path.name}_{comparison.config.name}_{name}")
            if report := population.report(path_of_arm, comparison, runner.folder(row), name):
                runner.say(f"{row.label}, {name}\n{report[0]}\n")
                yield from report[1]
                drawn += 1
    if not drawn:
        raise InputError("nothing is trained in that workdir: nothing to draw")


def _of_networks(
    kind: str, networks_by_name: Mapping[tuple[str, str, str], Snapshot], examples: int
) -> list[dict[str, Any] | tuple[int, int]]:
    """Measure networks, named by row, arm and moment as far as these differ."""
    labels, _, moments = map(set, zip(*networks_by_name, strict=True))
    measured = {}
    for (row, arm, when), network in networks_by_name.items():
        parts = (row if len(labels) > 1 else "", arm, when if len(moments) > 1 else "")
        label = "\n".join(filter(None, parts))
        inputs = () if kind == "products" else network.inputs(examples)
        measured[label] = _OF_NETWORKS[kind](network.model, network.variables, inputs)
    if kind != "impulse_maps":
        return [measured]
    if (grid := network.arm.program.task.grid()) is None:
        raise InputError("the model has no grid of patches: there are no offsets to draw")
    return [measured, grid]
