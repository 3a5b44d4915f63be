"""Draw a figure of a paper: PNG and CSV, from formulas, networks or finished runs."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from launch.marks import reached
from launch.registry import Entry, Spec, entries, scaled, scaled_entries
from launch.results import Results
from launch.runs import Queue
from launch.weights import Weights
from mimetic_jax.analysis import population
from mimetic_jax.analysis.attention import attention_maps
from mimetic_jax.analysis.capture import Network, networks
from mimetic_jax.analysis.figures import DRAW
from mimetic_jax.analysis.figures.gain import Point
from mimetic_jax.analysis.rank import stable_ranks
from mimetic_jax.analysis.residual import channel_mixing_residuals
from mimetic_jax.base.errors import InputError
from mimetic_jax.models.tensor_files import read_file
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.places import AnyPath
from papers import FIGURES
from papers.record import Figure, Small

EXAMPLES = 64
"""Test images over which maps and ranks are averaged."""

SOLVED = 16
"""Test images whose pixels are the equations of least squares, for hundreds of unknowns."""

_OF_RESULTS = ("curves", "dots", "grid", "sweep")


def draw(
    name: str,
    queue: Queue,
    wanted: Sequence[Entry],
    out: pathlib.Path,
    file: str = "",
    *,
    small: bool = False,
) -> list[AnyPath]:
    """Draw a figure.

    Args:
        name: such as "attention/figure3".
        queue: of its rows, trained as far as they are.
        wanted: its rows.
        out: folder of the files.
        file: pretrained weights, for a figure of weights.
        small: whether it is scaled down, as `wanted` is.

    Returns:
        The written files.

    Raises:
        InputError: if runs, data or files are missing.
    """
    figure = FIGURES[name]
    path = out / f"{name.replace('/', '_')}{'_small' * small}"
    options = dict(figure.options)
    if file and figure.draw != "products" and not figure.starts:
        raise InputError(f"--file={file}: {name} isn't drawn from the weights of a file")
    if file and figure.draw == "products":
        path.parent.mkdir(parents=True, exist_ok=True)
        return DRAW["products"](path, {pathlib.Path(file).stem: read_file(file)}, **options)
    if figure.draw not in DRAW or (figure.needs and not (wanted or "config" in options)):
        raise InputError(f"{name} needs {figure.needs}")
    path.parent.mkdir(parents=True, exist_ok=True)
    function = DRAW[figure.draw]
    if figure.draw in _OF_RESULTS:
        results = [one for entry in wanted for one in reached(entry, queue.results).values()]
        if not results:
            raise InputError(f"no run of {name} is finished: nothing to draw")
        if figure.draw == "curves":
            options["epochs"] = _epochs(wanted, queue)
        return function(path, results, **options)
    if figure.draw in _OF_NETWORKS:
        start = _of_start(options.pop("config", ""), figure.small if small else None)
        starts = [("", start)] if start else []
        if file:
            starts += _of_file(figure, file)
        found = _labelled(_networks(starts, queue, wanted))
        count = options.pop("examples", EXAMPLES)
        return function(path, *_OF_NETWORKS[figure.draw](found, count), **options)
    if figure.draw == "covariance":
        return list(_of_arms(path, queue, wanted, options))
    if figure.draw == "gain":
        points = _points(options["points"], options["sources"], queue.results)
        return function(path, list(points))
    return function(path, **options)


def _of_arms(
    path: pathlib.Path, queue: Queue, wanted: Sequence[Entry], options: Mapping[str, Any]
) -> Iterator[AnyPath]:
    """A picture of the population of each arm that is trained."""
    drawn = 0
    for entry in wanted:
        comparison = Comparison(queue.configs[entry.spec], queue.say)
        for name in queue.arms[entry.spec]:
            one = path.with_name(f"{path.name}_{comparison.config.name}_{name}")
            if found := population.report(
                one, comparison, queue.folder(entry.spec), name, **options
            ):
                queue.say(f"{entry.row.label}, {name}\n{found[0]}\n")
                yield from found[1]
                drawn += 1
    if not drawn:
        raise InputError("nothing is trained in that workdir: nothing to draw")


def _points(
    published: Mapping[str, Mapping[str, Sequence[tuple[str, float, float]]]],
    printed_by: Mapping[str, str],
    results: Results,
) -> Iterator[Point]:
    """Default and mimetic arm of published rows by panel, and of ours where both have runs."""
    for panel, sources in published.items():
        for name, rows in sources.items():
            for label, default, mimetic in rows:
                yield Point(printed_by[name], label, default, mimetic, panel=panel)
        for name, rows in sources.items():
            for small in (False, True):
                source, labels = f"ours: {printed_by[name]}", {label for label, *_ in rows}
                yield from _ours(name, labels, panel, source, small, results)


def _ours(
    name: str, labels: Collection[str], panel: str, source: str, small: bool, results: Results
) -> Iterator[Point]:
    every = scaled_entries(name) if small else entries(name)
    rows = [entry for entry in every if entry.row.label in labels]
    for entry in rows:
        found = reached(entry, results)
        default, mimetic = (
            found[arm].reached if arm in found else {} for arm in ("default", "mimetic")
        )
        if shared := sorted(default.keys() & mimetic.keys()):
            base, ours = (np.array([of[seed] for seed in shared]) for of in (default, mimetic))
            sd = float((ours - base).std(ddof=1)) if len(shared) > 1 else None
            where = f"{panel}, scaled down" if small else panel
            means = float(base.mean()), float(ours.mean())
            yield Point(source, entry.row.label, *means, sd, len(shared), where)


def _epochs(wanted: Sequence[Entry], queue: Queue) -> dict[str, float]:
    """Steps of one epoch by row, for rows that train for a number of epochs."""
    found = {}
    for entry in wanted:
        epochs = queue.configs[entry.spec].epochs
        for result in reached(entry, queue.results).values():
            for run in result.runs.values():
                if epochs:
                    found[entry.row.label] = run.steps / epochs
    return found


def _of_start(config: str, small: Small | None) -> Spec | None:
    """The comparison whose networks are drawn as they start, if a figure has one."""
    if not config:
        return None
    file, _, text = config.partition(":")
    return Spec(file, scaled(text, small), small.flags, True) if small else Spec(file, text)


def _of_file(figure: Figure, file: str) -> list[tuple[str, Spec]]:
    """The comparisons whose networks start from a file, with their labels."""
    weights = Weights.read(file)
    return [
        (
            row.label,
            Spec(
                row.config, f"{row.arguments},init={'+'.join(row.arms)}", row.flags, False, weights
            ),
        )
        for row in figure.starts
    ]


def _networks(
    starts: Sequence[tuple[str, Spec]], queue: Queue, wanted: Sequence[Entry]
) -> Iterator[tuple[str, Network]]:
    """Networks with their rows: as they start, and trained where the workdir has a checkpoint."""
    chosen = [(queue.configs[entry.spec], entry.spec, entry.row.label) for entry in wanted]
    chosen += [(queue.with_data(start.load(())), start, label) for label, start in starts]
    for one, spec, label in chosen:
        for network in networks(Comparison(one, queue.say), queue.folder(spec)):
            yield label, network


def _labelled(found: Iterable[tuple[str, Network]]) -> dict[str, Network]:
    """Networks by row, arm and moment, as far as these differ."""
    every = list(found)
    rows, moments = {row for row, _ in every}, {network.when for _, network in every}
    return {
        "\n".join(
            [row] * (len(rows) > 1) + [network.arm.name] + [network.when] * (len(moments) > 1)
        ): network
        for row, network in every
    }


def _each(function: Callable[..., Any], found: Mapping[str, Network], count: int) -> dict[str, Any]:
    """What a function of a model, its variables and inputs gives of each network."""
    return {
        label: function(network.model, network.variables, network.inputs(count))
        for label, network in found.items()
    }


def _products(found: Mapping[str, Network], count: int) -> tuple[Any, ...]:
    return ({label: network.variables["params"] for label, network in found.items()},)


def _attention(found: Mapping[str, Network], count: int) -> tuple[Any, ...]:
    return (_each(attention_maps, found, count),)


def _impulses(found: Mapping[str, Network], count: int) -> tuple[Any, ...]:
    grid = next(iter(found.values())).arm.program.task.grid()
    if grid is None:
        raise InputError("the model has no grid of patches: there are no offsets to draw")
    return _each(attention_maps, found, count), grid


def _ranks(found: Mapping[str, Network], count: int) -> tuple[Any, ...]:
    return (_each(stable_ranks, found, count),)


def _residuals(found: Mapping[str, Network], count: int) -> tuple[Any, ...]:
    return (_each(channel_mixing_residuals, found, SOLVED),)


_OF_NETWORKS: dict[str, Callable[[Mapping[str, Network], int], tuple[Any, ...]]] = {
    "products": _products,
    "attention_maps": _attention,
    "impulse_maps": _impulses,
    "stable_rank": _ranks,
    "residual": _residuals,
}
"""Arguments of the functions, besides the path, from networks and a number of examples."""
