"""The 12 numbers that the covariance of an MLP's weights has over a population of networks.

Hidden units are exchangeable. So are channels, in a network whose layers all start from independent
draws (fixed sin-cos positions break that). The covariance of the entries of W₁ and W₂ᵀ, both
[D, F], then has one number for each pair of kernels (`PAIRS`) and for what two entries share
(`SHARED`). A network has many pairs of entries for each, whose average comes exactly from the sums
over rows, over columns and over all; networks are independent, so their spread gives the standard
error whatever the dependence within one.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from mimetic_jax.errors import InputError
from mimetic_jax.weights.empirical import PAIRS, SHARED

FEATURES = len(PAIRS) * len(SHARED) + 2
"""Numbers per network: an average product per pair and kind of sharing, and two means."""

_MEANS = FEATURES - 2 + np.array([[0, 0], [1, 1], [0, 1]])  # of the two kernels of each pair
_TITLES = {
    "both": "same entry",
    "unit": "same hidden unit",
    "channel": "same channel",
    "neither": "neither",
}


@dataclasses.dataclass(frozen=True)
class Form:
    """The 12 numbers of a symmetric matrix over entries, in the order of `PAIRS` and `SHARED`.

    Attributes:
        value: [3, 4], in the square of the unit of weights.
        error: standard errors; zero for a prediction.
        correlation: the values over the root of the product of both kernels' values at "both".
        correlation_error: likewise.
    """

    value: np.ndarray
    error: np.ndarray
    correlation: np.ndarray
    correlation_error: np.ndarray


@dataclasses.dataclass(frozen=True)
class Numbers:
    """What a population says about one layer.

    Attributes:
        members: number of networks, or 0 for a prediction.
        mean: of the entries of W₁ and of W₂, [2].
        mean_error: standard errors.
        centred: covariances, by `Form`.
        uncentred: second moments, by `Form`: where all entries of a kernel have mean μ they exceed
            the covariances by μ².
    """

    members: int
    mean: np.ndarray
    mean_error: np.ndarray
    centred: Form
    uncentred: Form

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviations of the entries of W₁ and of W₂ over networks, [2]."""
        return np.sqrt(self.centred.value[:2, 0])

    def over(self, units: np.ndarray) -> Numbers:
        """The same in units of a standard deviation per kernel, [2], taken as exact."""
        first, second = units
        squares = np.array([first**2, second**2, first * second])[:, None]
        forms = {
            name: dataclasses.replace(form, value=form.value / squares, error=form.error / squares)
            for name, form in (("centred", self.centred), ("uncentred", self.uncentred))
        }
        return Numbers(self.members, self.mean / units, self.mean_error / units, **forms)


def features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Averages over the pairs of entries of each network that share a channel, a unit, both, none.

    For "channel" that is Σ_d ((Σ_f x_df)(Σ_f y_df) − Σ_f x_df y_df) / (D F (F − 1)), and so on.

    Args:
        first: W₁ [M, D, F], D and F at least 2.
        second: W₂ᵀ [M, D, F].

    Returns:
        [M, 14] float64: the averages by `PAIRS` and `SHARED`, then the means of W₁ and W₂.

    Example:
        >>> features(np.ones((1, 2, 3)), -np.ones((1, 2, 3)))[0, [0, 8, 12, 13]].tolist()
        [1.0, -1.0, 1.0, -1.0]
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    dim, hidden = first.shape[1:]
    columns = []
    for x, y in ((first, first), (second, second), (first, second)):
        both = np.einsum("mdf,mdf->m", x, y)
        unit = np.einsum("mf,mf->m", x.sum(1), y.sum(1)) - both
        channel = np.einsum("md,md->m", x.sum(2), y.sum(2)) - both
        neither = x.sum((1, 2)) * y.sum((1, 2)) - both - unit - channel
        columns += [both, unit / (dim - 1), channel / (hidden - 1)]
        columns.append(neither / ((dim - 1) * (hidden - 1)))
    averages = np.stack(columns, axis=1) / (dim * hidden)
    return np.concatenate([averages, first.mean((1, 2))[:, None], second.mean((1, 2))[:, None]], 1)


def numbers(members: int, total: np.ndarray, products: np.ndarray) -> Numbers:
    """The 12 numbers and their standard errors from sums of `features` over networks.

    Second moments are means over networks. From each, the covariance subtracts the product of the
    two kernels' means, estimated without bias by the products of distinct networks' means: the mean
    of an entry is one number per kernel, as entries are exchangeable. (Where it isn't, the
    covariances include the variance of that mean over entries.) Standard errors are of the delta
    method: those of each estimate's linearization in the 14 averages, from their covariance over
    networks.

    Args:
        members: M ≥ 2.
        total: Σ_m x_m, [14].
        products: Σ_m x_m x_mᵀ, [14, 14].

    Raises:
        InputError: for fewer than two networks.

    Example:
        >>> draws = np.random.default_rng(0).normal(size=(2, 500, 4, 6))
        >>> found = features(*draws)
        >>> result = numbers(500, found.sum(0), found.T @ found)
        >>> f"{result.centred.value[0, 0]:.1f} ± {result.centred.error[0, 0]:.2f}"
        '1.0 ± 0.01'
    """
    if members < 2:
        raise InputError(f"a population of {members} network(s) has no covariance: give at least 2")
    average = total / members
    spread = (products - members * np.outer(average, average)) / (members - 1) / members
    crossed = np.outer(total, total) - products
    left, right = _MEANS.T
    second_moments = average[:-2].reshape(3, 4)
    squares = crossed[left, right][:, None] / (members * (members - 1))
    plain = np.eye(FEATURES)[:-2].reshape(3, 4, FEATURES)
    slopes = np.zeros((3, 1, FEATURES))
    for pair in range(3):
        slopes[pair, 0, left[pair]] += average[right[pair]]
        slopes[pair, 0, right[pair]] += average[left[pair]]
    return Numbers(
        members,
        average[-2:],
        np.sqrt(spread.diagonal()[-2:].clip(min=0)),
        _form(second_moments - squares, plain - slopes, spread),
        _form(second_moments, plain, spread),
    )


def matrix(value: np.ndarray, dim: int, hidden: int) -> np.ndarray:
    """The whole matrix that has these 12 numbers, in the order of `covariance.Moments`.

    Args:
        value: of a `Form`, [3, 4].
        dim: D.
        hidden: F.

    Returns:
        [2 D F, 2 D F].

    Example:
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


def predicted(
    deviations: tuple[float, float] = (1.0, 1.0), *, b: float = 0.0, per_input: bool = False
) -> Numbers:
    """The numbers of independent draws, or of `MeanShift(b, per_input)` on top of them.

    Independent draws have variances and no other covariance. Eq. 2 (constant b) leaves covariances
    as they are, and adds b² s² to all second moments of W₁. Eq. 1 (per input) adds b² s² to those
    pairs of entries of W₁ that share a channel. In neither does W₁ depend on W₂.

    Args:
        deviations: s of the draws' entries, for W₁ and W₂.
        b: the shift in units of s; 0 for independent draws.
        per_input: whether b is the standard deviation of one shift per input, eq. 1.

    Returns:
        Numbers with errors of zero.

    Example:
        >>> predicted(b=0.5, per_input=True).centred.value[0].tolist()  # both, unit, channel, none
        [1.25, 0.0, 0.25, 0.0]

    Reference: Mimetic Initialization of MLPs, eqs. 1 and 2.
    """
    first, second = deviations
    value = np.zeros((3, 4))
    value[:2, 0] = first**2, second**2
    shift = (b * first) ** 2
    mean = np.array([0.0 if per_input else b * first, 0.0])
    if per_input:
        value[0, [0, 2]] += shift
    flat = value.copy()
    flat[0] += 0 if per_input else shift
    none = np.zeros((FEATURES, FEATURES))
    slopes = np.zeros((3, 4, FEATURES))
    return Numbers(0, mean, np.zeros(2), *(_form(form, slopes, none) for form in (value, flat)))


def comparison(initial: Numbers, trained: Numbers, b: float = 0.5) -> str:
    """A layer's numbers before and after training beside the predictions, as a Markdown table.

    All are in units of the initial standard deviations of both kernels, taken as exact.

    Args:
        initial: before training.
        trained: after it.
        b: of the predictions of eqs. 1 and 2, in the same unit.

    Returns:
        Lines with covariances, then second moments, then means.
    """
    found = [one.over(initial.deviations) for one in (initial, trained)]
    theory = [predicted(), predicted(b=b, per_input=True), predicted(b=b)]
    lines = [
        f"| | pair | entries share | initial | trained | independent | eq. 1, b={b:g} "
        f"| eq. 2, b={b:g} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, title in (("centred", "covariance"), ("uncentred", "second moment")):
        forms = [getattr(one, name) for one in (*found, *theory)]
        for i, pair in enumerate(PAIRS):
            for j, shared in enumerate(SHARED):
                cells = [_fixed(form.value[i, j], form.error[i, j]) for form in forms]
                lines.append(f"| {title} | {pair} | {_TITLES[shared]} | {' | '.join(cells)} |")
    for i, kernel in enumerate(("W1", "W2")):
        cells = [_fixed(one.mean[i], one.mean_error[i]) for one in (*found, *theory)]
        lines.append(f"| mean | {kernel} | | {' | '.join(cells)} |")
    return "\n".join(lines)


def _form(value: np.ndarray, slopes: np.ndarray, spread: np.ndarray) -> Form:
    """The errors of values [3, 4] with slopes [3, 4, 14] in averages of covariance [14, 14]."""
    variance = value[[[0, 0], [1, 1], [0, 1]], 0]  # of the two kernels of each pair
    slope = slopes[[[0, 0], [1, 1], [0, 1]], 0]
    with np.errstate(divide="ignore", invalid="ignore"):  # a kernel of zeros has no correlations
        size = np.sqrt(variance.prod(1))[:, None]
        correlation = value / size
        relative = (slope / variance[..., None]).sum(1)[:, None] / 2
        tilt = slopes / size[..., None] - correlation[..., None] * relative
        errors = [
            np.sqrt(np.einsum("ijk,kl,ijl->ij", one, spread, one).clip(min=0))
            for one in (slopes, tilt)
        ]
    return Form(value, errors[0], correlation, errors[1])


def _fixed(value: float, error: float) -> str:
    return f"{value:+z.4f} ± {error:.4f}" if error else f"{value:z.4g}"
