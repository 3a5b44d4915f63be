"""The covariance of MLP weights over a population of networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mimetic_jax.analysis import exchangeable, style
from mimetic_jax.analysis.covariance import Moments
from mimetic_jax.errors import InputError
from mimetic_jax.train.store.places import AnyPath, Place
from mimetic_jax.weights.empirical import PAIRS, SHARED

_FORMS = {"centred": "covariance", "uncentred": "second moment"}


def draw(
    path: Place | AnyPath,
    states: Mapping[str, Mapping[str, Moments]],
    *,
    clip: int | None = 8,
    layers: Sequence[int] = (),
) -> list[AnyPath]:
    """Draw Cov [vec W₁, vec W₂] and the uncentred form: a row per form and state, a column a layer.

    Above the diagonal are the measured entries, each with a standard error of 1/√M; below it the
    average over all exchangeable pairs, the 12 numbers, whose errors are much smaller. Entries are
    unrolled row by row as PyTorch stores the kernels, W₁ as [F, D] and W₂ as [D, F], of the first
    channels and hidden units: in a whole matrix of 1024² they are smaller than a dot of print, and
    a corner shows the same structure.

    All are in units of the first state's standard deviations. One color scale ends at the largest
    of the 12 numbers, apart from variances, or at 1/√M; measured entries beyond it saturate. The
    diagonal, which is the variances and far larger than the rest, is blank.

    The table has the 12 numbers with their standard errors, in the weights' own units.

    Args:
        path: of the files, without their suffix.
        states: sums of `covariance.from_population` per label, such as "initial" and "trained".
        clip: how many channels and hidden units are shown; all where there are fewer,
            or if None.
        layers: numbers from 1; all unless given.

    Returns:
        PATH.png and PATH.csv.

    Raises:
        InputError: if states have other layers than the first, or fewer than two networks; for a
            layer that isn't there; or if matplotlib isn't installed.

    Reference: Mimetic Initialization of MLPs, figure 1.
    """
    first = next(iter(states))
    for label, state in states.items():
        if state.keys() != states[first].keys():
            raise InputError(f"{label} has layers {', '.join(state)}, not those of {first}")
    shown = style.chosen(layers, list(states[first]), first)
    units = {name: states[first][name].numbers().deviations for name in shown.values()}
    panels = {
        (form, label): {
            number: _corner(states[label][name], form, clip, units[name])
            for number, name in shown.items()
        }
        for form in _FORMS
        for label in states
    }
    corners = [corner for line in panels.values() for corner in line.values()]
    least = min(moments.members for state in states.values() for moments in state.values()) ** -0.5
    bound = max(least, *(corner.largest for corner in corners))
    with style.matrices(len(panels), len(shown), most=2.0, beside=1.1, over=0.12, above=0.15) as (
        figure,
        axes,
    ):
        dots = figure.get_figwidth() * style.DPI / len(shown)
        for axis, number in zip(axes[0], shown, strict=True):
            axis.set_title(f"layer {number}", pad=12)
        for line, ((form, label), group) in zip(axes, panels.items(), strict=True):
            line[0].set_ylabel(f"{label}, {_FORMS[form]}")
            for axis, corner in zip(line, group.values(), strict=True):
                image = style.signed(axis, corner.matrix, bound)
                if len(corner.matrix) > dots:
                    image.set_interpolation("antialiased")
                    # Means of numbers: those of colors are gray where red and blue alternate.
                    image.set_interpolation_stage("data")
                _label_blocks(axis, corner.half, len(corner.matrix))
        figure.colorbar(
            image,
            ax=axes,
            extend="both",
            shrink=0.5,
            pad=0.01,
            ticks=[-bound, 0, bound],
            format="%.2f",
            label=f"in units of {first} variances",
        )
        header = [
            "layer", "name", "state", "networks", "form", "pair", "share",
            "value", "error", "correlation", "correlation error",
        ]  # fmt: skip
        return style.write(figure, path, header, list(_rows(states, shown)))


@dataclasses.dataclass(frozen=True)
class _Corner:
    """Measured entries above the diagonal and the 12 numbers below; how many entries are W₁'s."""

    matrix: np.ndarray
    half: int
    largest: float


def _corner(moments: Moments, form: str, clip: int | None, units: np.ndarray) -> _Corner:
    whole = moments.covariance() if form == "centred" else moments.second_moment()
    dim, hidden = moments.dim, moments.hidden
    channels, shown = (size if clip is None else min(clip, size) for size in (dim, hidden))
    entries = np.arange(dim * hidden)
    first = entries.reshape(hidden, dim)[:shown, :channels].ravel()
    second = entries.reshape(dim, hidden)[:channels, :shown].ravel() + dim * hidden
    chosen, scale = np.concatenate([first, second]), np.repeat(units, len(first))
    measured = whole[np.ix_(chosen, chosen)] / np.outer(scale, scale)
    value = getattr(moments.numbers().over(units), form).value
    expected = exchangeable.matrix(value, channels, shown)
    corner = np.triu(measured, 1) + np.tril(expected, -1)
    np.fill_diagonal(corner, np.nan)
    covariances = [*value[:2, 1:].ravel(), *value[2]]  # all but the variances
    return _Corner(corner, len(first), float(np.abs(covariances).max()))


def _label_blocks(axis: Any, half: int, size: int) -> None:
    for line in (axis.axhline, axis.axvline):
        line(half - 0.5, color="#000000", linewidth=0.5)
    axis.set_xticks([half / 2, (half + size) / 2], ["$W_1$", "$W_2$"])
    axis.set_yticks([half / 2, (half + size) / 2], ["$W_1$", "$W_2$"])
    axis.tick_params(length=0, pad=1, top=True, labeltop=True, bottom=False, labelbottom=False)


def _rows(
    states: Mapping[str, Mapping[str, Moments]], shown: Mapping[int, str]
) -> Iterator[list[Any]]:
    for number, name in shown.items():
        for label, state in states.items():
            numbers = state[name].numbers()
            for form in _FORMS:
                found = getattr(numbers, form)
                for i, pair in enumerate(PAIRS):
                    for j, shared in enumerate(SHARED):
                        yield [
                            number, name, label, numbers.members, form, pair, shared,
                            found.value[i, j], found.error[i, j],
                            found.correlation[i, j], found.correlation_error[i, j],
                        ]  # fmt: skip
