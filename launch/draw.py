"""Draw a figure of a paper: PNG and CSV, from formulas, networks or finished runs."""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from launch.marks import reached
from launch.registry import Entry, Spec, scaled
from launch.runs import Queue
from launch.weights import Weights
from mimetic_jax.analysis import population
from mimetic_jax.analysis.attention import attention_maps
from mimetic_jax.analysis.capture import Network, networks
from mimetic_jax.analysis.figures import DRAW
from mimetic_jax.analysis.rank import stable_ranks
from mimetic_jax.analysis.residual import channel_mixing_residuals
from mimetic_jax.base.errors import InputError
from mimetic_jax.models.tensor_files import read_file
from mimetic_jax.schemes import Mimetic
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.config import arms_of
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
        if figure.draw == "grid":
            options["panels"] = _panels(wanted, queue)
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


def _panels(wanted: Sequence[Entry], queue: Queue) -> dict[str, dict[str, tuple[float, float]]]:
    """α and β of a pair of matrices by arm, off the schemes: of the arms that share the other's."""
    constants = {
        arm: {"vo": (one.alpha_vo, one.beta_vo), "qk": (one.alpha_qk, one.beta_qk)}
        for entry in wanted
        for arm, config in arms_of(queue.configs[entry.spec]).items()
        for one in config.scheme
        if isinstance(one, Mimetic)
    }
    panels: dict[str, Any] = {}
    for pair, other in (("vo", "qk"), ("qk", "vo")):
        ((shared, _),) = Counter(each[other] for each in constants.values()).most_common(1)
        panels[pair] = {arm: at[pair] for arm, at in constants.items() if at[other] == shared}
    return panels


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
