"""The covariance of an MLP's weights over a population of networks, and its 12 numbers.

Hidden units are exchangeable. So are channels, in a network whose layers all start from independent
draws (fixed sin-cos positions break that). The covariance of the entries of W₁ and W₂ᵀ, both
[D, F], then has one number for each pair of kernels (`PAIRS`) and for what two entries share
(`SHARED`). A network has many pairs of entries for each, whose average comes exactly from the sums
over rows, over columns and over all; networks are independent, so their spread gives the standard
error whatever the dependence within one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.table import aligned
from mimetic_jax.rules import paths
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.group import restored
from mimetic_jax.train.start import initial_state
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.tree.rewrite import blocks

PAIRS = ("W1 W1", "W2 W2", "W1 W2")
"""Kernels of the two entries; W₂ is transposed, so that both are indexed by channel and unit."""

SHARED = ("both", "unit", "channel", "neither")
"""What the two entries share: channel and hidden unit, the hidden unit alone, the channel (the
input of W₁, the output of W₂) alone, or neither."""

_KERNELS = ((0, 0), (1, 1), (0, 1))  # of `PAIRS`


@dataclasses.dataclass(frozen=True)
class Numbers:
    """What a population of so many members says about one layer, with standard errors."""

    members: int
    mean: np.ndarray  # of the entries of W₁ and of W₂, [2]
    mean_error: np.ndarray
    covariance: np.ndarray  # [3, 4], in the order of `PAIRS` and `SHARED`
    covariance_error: np.ndarray

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviations of the entries of W₁ and of W₂ over networks, [2]."""
        return np.sqrt(self.covariance[:2, 0])

    def over(self, units: np.ndarray) -> Numbers:
        """Return the same in units of a standard deviation per kernel, [2], taken as exact."""
        squares = np.array([units[i] * units[j] for i, j in _KERNELS])[:, None]
        return Numbers(
            self.members,
            self.mean / units,
            self.mean_error / units,
            self.covariance / squares,
            self.covariance_error / squares,
        )


def features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Averages over the pairs of entries of each network that share a channel, a unit, both, none.

    For "channel" that is Σ_d ((Σ_f x_df)(Σ_f y_df) − Σ_f x_df y_df) / (D F (F − 1)), and so on.
    Of W₁ and W₂ᵀ, both [M, D, F] with D and F of at least 2, they are [M, 14]: the averages by
    `PAIRS` and `SHARED`, then the means of both.
    """
    kernels = [np.asarray(kernel, np.float64) for kernel in (first, second)]
    dim, hidden = first.shape[1:]
    columns = []
    for x, y in ((kernels[i], kernels[j]) for i, j in _KERNELS):
        both = np.einsum("mdf,mdf->m", x, y)
        unit = np.einsum("mf,mf->m", x.sum(1), y.sum(1)) - both
        channel = np.einsum("md,md->m", x.sum(2), y.sum(2)) - both
        neither = x.sum((1, 2)) * y.sum((1, 2)) - both - unit - channel
        columns += [both, unit / (dim - 1), channel / (hidden - 1)]
        columns.append(neither / ((dim - 1) * (hidden - 1)))
    averages = np.stack(columns, axis=1) / (dim * hidden)
    return np.concatenate([averages, *(kernel.mean((1, 2))[:, None] for kernel in kernels)], 1)


def numbers(averages: np.ndarray) -> Numbers:
    """Return the 12 numbers and their standard errors, from the `features` [M, 14] of the networks.

    From the mean product of two entries, the covariance subtracts the product of the two kernels'
    means, estimated without bias by the products of distinct networks' means: the mean
    of an entry is one number per kernel, as entries are exchangeable. (If it isn't, the
    covariances include the variance of that mean over entries.) Standard errors are of the delta
    method: those of each estimate's linearization in the 14 averages, from their covariance over
    networks.
    """
    members, size = averages.shape
    if members < 2:
        raise InputError(f"a population of {members} network(s) has no covariance; pass at least 2")
    average, spread = averages.mean(0), np.cov(averages, rowvar=False) / members
    means = averages[:, -2:]
    crossed = np.outer(means.sum(0), means.sum(0)) - means.T @ means
    squares = np.array([crossed[pair] for pair in _KERNELS]) / (members * (members - 1))
    slopes = np.eye(size)[:-2].reshape(3, 4, size)
    for pair, (i, j) in enumerate(_KERNELS):
        slopes[pair, :, size - 2 + i] -= average[size - 2 + j]
        slopes[pair, :, size - 2 + j] -= average[size - 2 + i]
    variance = np.einsum("ijk,kl,ijl->ij", slopes, spread, slopes)
    return Numbers(
        members,
        average[-2:],
        np.sqrt(spread.diagonal()[-2:]),
        average[:-2].reshape(3, 4) - squares[:, None],
        np.sqrt(variance.clip(min=0)),
    )


def matrix(value: np.ndarray, dim: int, hidden: int) -> np.ndarray:
    """Return the matrix [2 D F, 2 D F] that has the 12 numbers [3, 4], in the order of `Moments`.

    >>> matrix(np.arange(12).reshape(3, 4), 2, 1)  # two channels of one unit
    array([[0, 1, 8, 9],
           [1, 0, 9, 8],
           [8, 9, 4, 5],
           [9, 8, 5, 4]])
    """
    channels, units = np.arange(dim), np.arange(hidden)
    channel = np.concatenate([np.tile(channels, hidden), np.repeat(channels, hidden)])
    unit = np.concatenate([np.repeat(units, dim), np.tile(units, dim)])
    kernel = np.repeat([0, 1], dim * hidden)
    pair = np.array([[0, 2], [2, 1]])[kernel[:, None], kernel]
    shared = 3 - 2 * (unit[:, None] == unit) - (channel[:, None] == channel)
    return np.asarray(value)[pair, shared]


class Moments:
    """Sums over networks for the MLP of one layer, float64.

    The vector of a network is [vec W₁, vec W₂], P = 2 D F entries, unrolled row by row as PyTorch
    stores both: W₁ as [F, D], W₂ as [D, F]. Our kernels are the transposes. So entry f·D + d of the
    first half is W₁[d, f] here, and entry d·F + f of the second half is W₂[f, d].
    """

    def __init__(self, dim: int, hidden: int) -> None:
        size = 2 * dim * hidden
        self.dim, self.hidden, self.members = dim, hidden, 0
        self._total, self._products = np.zeros(size), np.zeros((size, size))
        self._features: list[np.ndarray] = []

    def add(self, first: np.ndarray, second: np.ndarray) -> None:
        """Add networks, of kernels W₁ [M, D, F] and W₂ [M, F, D]."""
        first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
        rows = [array.swapaxes(1, 2).reshape(len(array), -1) for array in (first, second)]
        vectors = np.concatenate(rows, axis=1)
        self.members += len(vectors)
        self._total += vectors.sum(0)
        self._products += vectors.T @ vectors
        self._features.append(features(first, second.swapaxes(1, 2)))

    @property
    def covariance(self) -> np.ndarray:
        """Over networks, without bias, [P, P]."""
        mean = self._total / self.members
        centered = self._products - self.members * np.outer(mean, mean)
        return np.asarray(centered / (self.members - 1))

    def numbers(self) -> Numbers:
        """Return the 12 numbers of the covariance."""
        return numbers(np.concatenate(self._features))


def add_network(layers: dict[str, Moments], params: Any, **options: Any) -> None:
    """Add a network to the sums for each of its MLPs, by path, from input to output.

    The path has the index of a layer that `scan` stacks, "blocks/mlp[1]"; the tree is nested or
    flat; options are those of `mimetic_jax.blocks`.
    """
    kernels = {
        paths.of_layer(path, layer): (np.asarray(block["mlp_in"]), np.asarray(block["mlp_out"]))
        for path, layer, block in blocks(params, **options)
        if {"mlp_in", "mlp_out"} <= block.keys()
    }
    if not kernels:
        seen = ", ".join([path for path, _ in paths.flatten(params)[0]][:8])
        raise InputError(f"there is no MLP among the paths {seen or '(none)'}")
    for name in sorted(kernels, key=paths.natural_order):
        first, second = kernels[name]
        layers.setdefault(name, Moments(*first.shape)).add(first[None], second[None])


def report(
    path: AnyPath, comparison: Comparison, workdir: AnyPath, name: str
) -> tuple[str, list[AnyPath]] | None:
    """Return the numbers of an arm's trained population as a table, and its picture; None without
    one.

    The table is in units of the variances before training.
    """
    runs = [run for run in comparison.runs(workdir) if run.arm == name and run.finished()]
    if not runs:
        return None
    states: dict[str, dict[str, Moments]] = {"initial": {}, "trained": {}}
    leaves = comparison.arms[name].program.rewrite_options
    # One network at a time: a population is large.
    for run, trained in restored(runs, comparison.arms):
        if trained is None:
            raise InputError(f"{run} has no checkpoint in {run.checkpoints}")
        # Those before the first step aren't stored: the seed draws them again.
        start = initial_state(comparison.arms[name], run.seed, comparison.say)
        for layers, state in zip(states.values(), (start, trained), strict=True):
            add_network(layers, jax.device_get(state.params), **leaves)
    return _text(states["trained"], states["initial"]), draw(path, states)


def _text(state: Mapping[str, Moments], units: Mapping[str, Moments]) -> str:
    """A row per number and a column per layer."""
    layers = [state[name].numbers().over(units[name].numbers().deviations) for name in state]
    rows = [("covariance", "entries share", *state)]
    for i, pair in enumerate(PAIRS):
        for j, shared in enumerate(SHARED):
            cells = (f"{x.covariance[i, j]:+.4f} ± {x.covariance_error[i, j]:.4f}" for x in layers)
            rows.append((pair, shared, *cells))
    for i, kernel in enumerate(("W1", "W2")):
        cells = (f"{x.mean[i]:+.4f} ± {x.mean_error[i]:.4f}" for x in layers)
        rows.append((f"mean of {kernel}", "", *cells))
    return "\n".join([f"{layers[0].members} members", *aligned(rows)])


_SHOWN = 8
"""Channels and hidden units that a picture shows."""


def draw(path: AnyPath, states: Mapping[str, Mapping[str, Moments]]) -> list[AnyPath]:
    """Draw Cov [vec W₁, vec W₂]: a row per state and a column per layer.

    Above the diagonal are the measured entries, each with a standard error of 1/√M; below it the
    12 numbers, whose errors are much smaller. Shown are the first channels and hidden units: in
    a whole matrix of 1024² entries are smaller than a dot of print.

    All are in units of the first state's standard deviations. One color scale ends at the largest
    of the 12 numbers, apart from variances, or at 1/√M; measured entries beyond it saturate. The
    diagonal, which is the variances and far larger than the rest, is blank.

    Reference: Mimetic Initialization of MLPs, figure 1.
    """
    first = next(iter(states))
    layers = dict(enumerate(states[first], 1))
    by_state = {
        label: {name: layer.numbers() for name, layer in state.items()}
        for label, state in states.items()
    }
    panels = {
        label: [
            _corner(moments, by_state[label][name], by_state[first][name].deviations)
            for name, moments in state.items()
        ]
        for label, state in states.items()
    }
    least = min(x.members for state in by_state.values() for x in state.values()) ** -0.5
    bound = max(least, *(largest for line in panels.values() for _, largest in line))
    with style.matrices(len(panels), len(layers), most=2.0, beside=1.1, over=0.12, above=0.15) as (
        figure,
        axes,
    ):
        for axis, number in zip(axes[0], layers, strict=True):
            axis.set_title(f"layer {number}", pad=12)
        for row, (label, line) in zip(axes, panels.items(), strict=True):
            row[0].set_ylabel(label)
            for axis, (corner, _) in zip(row, line, strict=True):
                image = style.signed(axis, corner, bound)
                _label_blocks(axis, len(corner) // 2)
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
        header = ["layer", "name", "state", "networks", "pair", "share", "value", "error"]
        return style.write(figure, path, header, list(_rows(by_state, layers)))


def _corner(moments: Moments, numbers: Numbers, units: np.ndarray) -> tuple[np.ndarray, float]:
    """Measured entries above the diagonal and the 12 numbers below; the largest but variances."""
    dim, hidden = moments.dim, moments.hidden
    channels, neurons = min(_SHOWN, dim), min(_SHOWN, hidden)
    entries = np.arange(dim * hidden)
    first = entries.reshape(hidden, dim)[:neurons, :channels].ravel()
    second = entries.reshape(dim, hidden)[:channels, :neurons].ravel() + dim * hidden
    chosen, scale = np.concatenate([first, second]), np.repeat(units, len(first))
    measured = moments.covariance[np.ix_(chosen, chosen)] / np.outer(scale, scale)
    value = numbers.over(units).covariance
    corner = np.triu(measured, 1) + np.tril(matrix(value, channels, neurons), -1)
    np.fill_diagonal(corner, np.nan)
    return corner, float(np.abs([*value[:2, 1:].ravel(), *value[2]]).max())


def _label_blocks(axis: Any, half: int) -> None:
    for line in (axis.axhline, axis.axvline):
        line(half - 0.5, color="#000000", linewidth=0.5)
    axis.set_xticks([half / 2, 3 * half / 2], ["$W_1$", "$W_2$"])
    axis.set_yticks([half / 2, 3 * half / 2], ["$W_1$", "$W_2$"])
    axis.tick_params(length=0, pad=1, top=True, labeltop=True, bottom=False, labelbottom=False)


def _rows(
    by_state: Mapping[str, Mapping[str, Numbers]], layers: Mapping[int, str]
) -> Iterator[list[Any]]:
    for number, name in layers.items():
        for label, state in by_state.items():
            measured = state[name]
            for i, pair in enumerate(PAIRS):
                for j, shared in enumerate(SHARED):
                    numbers = measured.covariance[i, j], measured.covariance_error[i, j]
                    yield [number, name, label, measured.members, pair, shared, *numbers]
