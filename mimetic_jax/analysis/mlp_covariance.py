"""What the MLPs of a population have in common, before and after training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.covariance import Moments, from_population, write_statistics
from mimetic_jax.analysis.exchangeable import comparison as beside_predictions
from mimetic_jax.analysis.figures import covariance
from mimetic_jax.errors import InputError
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.chunks import Chunk, Members
from mimetic_jax.train.store.places import AnyPath, Place


def analyze(comparison: Comparison, workdir: Place) -> str:
    """The covariance of each arm's MLPs over its members, as tables, a picture and a file.

    The picture and what `schemes.Empirical` draws from are written into WORKDIR/population/ARM.

    Raises:
        InputError: if no arm has trained members, or a model has no MLP.
    """
    comparison.recognize(workdir)
    parts = []
    for name in comparison.arms:
        path = Members.of(workdir, name).folder / "covariance"
        if text := report(path, comparison, workdir, name):
            parts += [f"{name}\n{text[0]}", f"written: {', '.join(map(str, text[1]))}"]
    if not parts:
        raise InputError(f"{workdir} has no population: train one with --config.members=M")
    return "\n".join(parts)


def report(
    path: Place | AnyPath, comparison: Comparison, workdir: Place, name: str, **options: Any
) -> tuple[str, list[AnyPath]] | None:
    """The tables of an arm's population, its picture, and what `schemes.Empirical` draws from.

    Args:
        path: of the files, without their suffix.
        comparison: of the arm.
        workdir: of its members.
        name: of the arm.
        **options: of `figures.covariance.draw`.

    Returns:
        The twelve numbers of each layer beside what eqs. 1 and 2 of the paper predict; and
        PATH.png, PATH.csv and PATH.json. None where no member is trained.
    """
    population, arm = Members.of(workdir, name), comparison.arms[name]
    if not population.trained:
        return None
    states = moments(population, arm, arm.config.members or None)
    statistics = style.beside(path, "json")
    write_statistics(statistics, states["initial"], states["trained"])
    return _text(states), [*covariance.draw(path, states, **options), statistics.path]


def moments(
    population: Members, arm: Arm, members: int | None = None
) -> dict[str, dict[str, Moments]]:
    """Sums over the members of an arm by state, "initial" and "trained", and by layer.

    Members that diverged are left out of both.

    Args:
        population: the trained members of the arm.
        arm: whose model says which parameters are an MLP's.
        members: how many, from member 0 on; all unless given.
    """
    return {
        state: from_population(_weights(population, members, field), rules=arm.program.rules)
        for state, field in (("initial", "initial"), ("trained", "final"))
    }


def _text(states: Mapping[str, Mapping[str, Moments]]) -> str:
    return "\n\n".join(
        f"{name}, {trained.members} members\n"
        + beside_predictions(states["initial"][name].numbers(), trained.numbers())
        for name, trained in states["trained"].items()
    )


def _weights(population: Members, members: int | None, field: str) -> Iterator[dict[str, Any]]:
    for chunk in population.chunks(members):
        kept = _finite(chunk)
        yield {path: array[kept] for path, array in getattr(chunk, field).items()}


def _finite(chunk: Chunk) -> np.ndarray:
    """Which members have finite weights after training."""
    each = [
        np.isfinite(array).reshape(len(array), -1).all(axis=1) for array in chunk.final.values()
    ]
    return np.all(each, axis=0)
