"""What a few runs say about the difference of two arms.

One engine serves workdirs and docs/: Student's t with the spread over seeds and the choice of the
test examples.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import scipy  # whose parts load when they are first used: those here take half a second

ENOUGH = 3
"""Pairs of runs that a claim takes."""

LEVEL = 0.05
"""Of significance."""

FOUND = 0.9
"""How often a gain is to be found that a comparison is planned for."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean difference, ours minus theirs in units of the score, with its 95 % interval.

    Attributes:
        low, high: the ends of the interval; None if nothing supports one.
        n: pairs of runs.
        p: the p-value of a difference of 0, two-sided; corrected if several are tested at once.
            None if nothing supports one.
        few_examples: whether the seeds alone decide, and the choice of the test examples undoes it.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    p: float | None = None
    few_examples: bool = False

    def side(self, higher: bool) -> int:
        """1 if ours is better, -1 if it is worse, 0 if the interval doesn't exclude zero.

        If there is a p, it decides instead, as it may be a corrected one: below .05. Fewer pairs
        than a claim takes say nothing, and no width neither: equal differences of a few runs are no
        sign that those of others are equal.

        >>> Difference(-2, -3, -1, n=3).side(higher=False), Difference(1, 1, 1, n=3).side(True)
        (1, 0)
        """
        if self.n < ENOUGH:
            return 0
        if self.low is None or self.high is None or self.low == self.high:
            return 0
        sign = (self.low > 0) - (self.high < 0)
        if self.p is not None:
            sign = (sign or int(np.sign(self.mean))) if self.p < LEVEL else 0
        return sign if higher else -sign

    def __str__(self) -> str:
        return f"{self:.2f}"

    def __format__(self, spec: str) -> str:
        if self.low is None:
            return f"{self.mean:+{spec}}"
        return f"{self.mean:+{spec}} [{self.low:+{spec}}, {self.high:+{spec}}]"


@dataclasses.dataclass(frozen=True)
class Spread:
    """Standard deviation and degrees of freedom of scores around what arm and seed explain."""

    sd: float
    freedom: int


def pooled_spread(arms: Iterable[Mapping[int, float]]) -> Spread | None:
    """The spread of several arms' runs, from the scores of each by seed; None if nothing tells it.

    The residual of scores = arm + seed, by least squares:

        s² = ‖residual‖² / (N − rank)

    Of two arms with the same seeds, s² is half the variance of their differences. Of A arms it has
    (A − 1) (n − 1) degrees of freedom, while a pair has n − 1.

    >>> found = pooled_spread([{0: 1.0, 1: 2.0, 2: 3.0}, {0: 1.5, 1: 2.0, 2: 4.0}])
    >>> round(found.sd, 3), found.freedom
    (0.354, 2)
    """
    scores = [(arm, seed, value) for arm, of in enumerate(arms) for seed, value in of.items()]
    if not scores:
        return None
    values = np.array([value for *_, value in scores])
    columns = [np.unique([one[at] for one in scores], return_inverse=True)[1] for at in (0, 1)]
    design = np.concatenate([np.eye(column.max() + 1)[column] for column in columns], axis=1)
    fitted, _, rank, _ = np.linalg.lstsq(design, values)
    freedom = len(values) - int(rank)
    if not freedom:
        return None
    residual = values - design @ fitted
    sd = float(np.sqrt(residual @ residual / freedom))
    return Spread(sd if sd > 1e-12 * abs(values).max() else 0.0, freedom)  # else by rounding alone


_Numbers: TypeAlias = float | np.ndarray


class Spreads:
    """The spread of each difference of a table's arms: its own, or that of the whole table.

    Of a few pairs alone the spread is often too small by chance; that of a whole table isn't, but
    is another arm's where spreads differ. Half the variance of the differences of two arms, s² with
    d = n − 1 degrees of freedom, has under normal scores

        E log s² = log σ² + ψ(d/2) − log(d/2),   Var log s² = ψ'(d/2)

    The table's spread is used if the log s² of all pairs of arms vary by no more than ψ'(d/2): the
    prior of moderated variances then has infinite weight (Smyth 2004). A smaller weight would draw
    the interval of an arm that spreads more towards the others': in simulations it then holds the
    truth in 80 to 93 of 100 cases, so that the prior counts fully or not at all. An arm may still
    be the only one that spreads: a pair keeps its own, wider interval if it varies more than the
    arms beside it (F test at the level .25), and if there are fewer than two of those.

    Reference: Linear Models and Empirical Bayes Methods for Assessing Differential Expression in
    Microarray Experiments (Smyth 2004).
    """

    def __init__(self, arms: Mapping[str, Mapping[int, float]]) -> None:
        self._arms = dict(arms)
        self._table = pooled_spread(self._arms.values())
        pairs = (_own(*pair) for pair in itertools.combinations(self._arms.values(), 2))
        known = [pair for pair in pairs if pair]
        variances = np.square([pair.sd for pair in known])
        freedom = np.array([pair.freedom for pair in known])
        self._alike = len(known) > 1 and bool(_alike(variances, freedom))

    def of(self, ours: str, theirs: str) -> Spread | None:
        """The spread of the difference of two arms; None if nothing tells it.

        >>> arms = {"a": {0: 1.0, 1: 1.4, 2: 1.2}, "b": {0: 1.5, 1: 1.3, 2: 1.6}}
        >>> Spreads(arms).of("a", "b").freedom
        2
        >>> more = {"c": {0: 2.0, 1: 2.3, 2: 2.4}, "d": {0: 2.1, 1: 1.9, 2: 1.7}}
        >>> Spreads({**arms, **more}).of("a", "b").freedom
        6
        """
        table, own = self._table, _own(self._arms[ours], self._arms[theirs])
        if table is None or not self._alike or own is None:
            return table if self._alike else own
        rest = pooled_spread(of for arm, of in self._arms.items() if arm not in (ours, theirs))
        if rest is None:
            return own
        freedom = own.freedom, table.freedom, rest.freedom
        return own if _stands_out(own.sd, table.sd, rest.sd, freedom) else table


def _own(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Spread | None:
    """The spread of the pairs of two arms alone; None for fewer than two."""
    deltas = [ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()]
    if len(deltas) < 2:
        return None
    return Spread(float(np.std(deltas, ddof=1) / np.sqrt(2)), len(deltas) - 1)


def _alike(variances: np.ndarray, freedom: np.ndarray | int) -> np.ndarray:
    """Whether variances [..., G] of all pairs of arms differ no more than by chance."""
    middle = np.median(variances, axis=-1, keepdims=True)
    floored = np.maximum(variances, np.maximum(1e-5 * middle, 1e-300))
    half = np.asarray(freedom) / 2
    logs = np.log(floored) - scipy.special.digamma(half) + np.log(half)
    return logs.var(axis=-1, ddof=1) <= np.mean(scipy.special.polygamma(1, half))


def _stands_out(own: _Numbers, table: _Numbers, rest: _Numbers, freedom: Sequence[int]) -> _Numbers:
    """Whether a pair spreads more than the arms beside it, and its own interval is wider.

    From deviations of the pair, the table and its other arms, and their degrees of freedom.
    """
    large, small, _ = scipy.stats.t.ppf(1 - LEVEL / 2, freedom)
    ratio = np.square(own / np.maximum(rest, 1e-300))
    more = scipy.stats.f.sf(ratio, freedom[0], freedom[2]) < _MORE
    return np.logical_and(own * large > table * small, more)


_MORE = 0.25
"""Level of the test that a pair spreads more than the arms beside it."""


def paired_difference(
    ours: Sequence[float],
    theirs: Sequence[float],
    spread: Spread | None = None,
    choice: float = 0.0,
) -> Difference:
    """The difference of two lists of scores, pair by pair; of one pair alone without an interval.

    The interval is Student's t, with s of `spread` or else of the pairs, and with the variance c
    that the `choice` of the test examples gives the difference, whatever the number of seeds:

        mean ± t(f) √(2 s²/n + c),   f = freedom · ((2 s²/n + c) / (2 s²/n))²

    >>> print(paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0]))
    +1.17 [+0.45, +1.88]
    >>> print(paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0], Spread(0.5, 6)))
    +1.17 [+0.17, +2.17]
    >>> found = paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0], choice=4.0)
    >>> print(found, found.few_examples)
    +1.17 [-2.77, +5.10] True
    """
    deltas = np.subtract(ours, theirs)
    mean, n = float(deltas.mean()), len(deltas)
    spread = spread or _own(dict(enumerate(ours)), dict(enumerate(theirs)))
    if spread is None:
        return Difference(mean, None, None, n)
    (alone, _), (p, half) = (_tested(mean, spread, n, part) for part in (0.0, choice))
    few = alone is not None and p is not None and alone < LEVEL <= p
    return Difference(mean, mean - half, mean + half, n, p, few_examples=few)


def _tested(mean: float, spread: Spread, n: int, choice: float) -> tuple[float | None, float]:
    """The p-value of a difference of 0, and half of the interval's width."""
    by_seeds = 2 * spread.sd**2 / n
    error = float(np.sqrt(by_seeds + choice))
    if not error:
        return None, 0.0
    freedom = spread.freedom * (error**2 / by_seeds) ** 2 if by_seeds else np.inf
    p = 2 * float(scipy.stats.t.sf(abs(mean) / error, freedom))
    return p, error * float(scipy.stats.t.ppf(1 - LEVEL / 2, freedom))


_OF_INDEPENDENT = 0.25
"""The part of the variance of independent answers that is counted."""


def by_choice(shares: Sequence[float], images: int) -> float:
    """The variance of a difference of two shares by the choice of the images that both are of.

    Of shares p and q of N images that are classified rightly, each the mean over seeds, at most

        (p(1 − p) + q(1 − q)) / (4 N)

    It would be four times that if an image that is hard for one network were no harder than others
    for the next. Networks of one kind agree on the hard images: .04 to .10 of that was measured of
    ViTs on the digits, mimetic or not. A right and a wrong answer are added to each share.

    >>> [round(by_choice((0.6, 0.5), images) ** 0.5, 3) for images in (28, 10_000, 0)]
    [0.066, 0.004, 0.0]
    """
    if not images:
        return 0.0
    kept = (np.array(shares) * images + 1) / (images + 2)
    return _OF_INDEPENDENT * float((kept * (1 - kept)).sum()) / images


def holm(differences: Sequence[Difference | None]) -> list[Difference | None]:
    """Differences that are tested at once, with p corrected for their number, after Holm.

        p'₍ᵢ₎ = max over j ≤ i of min(1, (m − j + 1) p₍ⱼ₎),   p₍₁₎ ≤ … ≤ p₍ₘ₎

    Intervals stay those of each difference alone. Differences without p aren't counted.

    >>> three = [Difference(1, 0, 2, n=5, p=p) for p in (0.01, 0.04, 0.03)]
    >>> [round(found.p, 3) for found in holm(three)]
    [0.03, 0.06, 0.06]

    Reference: A Simple Sequentially Rejective Multiple Test Procedure (Holm 1979).
    """
    tested = [(d.p, at) for at, d in enumerate(differences) if d is not None and d.p is not None]
    corrected, largest = list(differences), 0.0
    for rank, (p, at) in enumerate(sorted(tested)):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        corrected[at] = dataclasses.replace(corrected[at], p=largest)  # type: ignore[type-var]
    return corrected


def smallest_gain(sd: float, n: int, arms: int = 2, choice: float = 0.0) -> float:
    """The smallest gain that n seeds of two arms show nine times of ten, by `paired_difference`.

    With runs of standard deviation s and a variance c by the `choice` of the test examples, the
    mean difference has the normal distribution of mean g and variance 2 s²/n + c, and the spreads
    of a table of so many arms are those of drawn normal scores: the g is returned which exceeds the
    threshold of a two-sided test with probability .9.

    >>> f"{smallest_gain(0.03, n=5):.2f}"
    '0.08'
    """
    spread, freedom = _drawn(n, arms)
    by_seeds = 2 * np.square(sd * spread) / n
    error = np.sqrt(by_seeds + choice)
    if not error.all():
        return 0.0
    freedom = freedom * np.square((by_seeds + choice) / np.maximum(by_seeds, 1e-9 * choice))
    needed = scipy.stats.t.ppf(1 - LEVEL / 2, freedom) * error
    true = float(np.sqrt(2 * sd**2 / n + choice))

    def missed(gain: float) -> float:
        found = scipy.stats.norm.cdf([(gain - needed) / true, (-gain - needed) / true]).sum(axis=0)
        return FOUND - float(found.mean())

    return float(scipy.optimize.brentq(missed, 0.0, 2 * needed.max() + 10 * true))


_DRAWS = 2000


@functools.cache
def _drawn(n: int, arms: int) -> tuple[np.ndarray, np.ndarray]:
    """The spread of the first pair of drawn tables of normal scores, and its degrees of freedom."""
    scores = np.random.default_rng(0).normal(size=(_DRAWS, arms, n))
    return balanced_spreads(scores)


def balanced_spreads(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What `Spreads` says of the first two arms of tables [T, A, n]: deviation and freedom, [T]."""
    _, arms, n = scores.shape
    few = n - 1
    centered = scores - scores.mean(axis=-1, keepdims=True)
    moments = np.einsum("tan,tbn->tab", centered, centered) / few
    one, other = np.triu_indices(arms, 1)
    variances = (moments[:, one, one] + moments[:, other, other]) / 2 - moments[:, one, other]
    own = np.sqrt(variances[:, 0])
    if arms < 4:
        return own, np.full(len(own), float(few))
    table, rest = (
        np.sqrt((np.trace(x, axis1=1, axis2=2) - x.mean(axis=1).sum(axis=1)) / (x.shape[1] - 1))
        for x in (moments, moments[:, 2:, 2:])
    )
    freedom = few, (arms - 1) * few, (arms - 3) * few
    lone = ~_alike(variances, few) | _stands_out(own, table, rest, freedom)
    return np.where(lone, own, table), np.where(lone, freedom[0], freedom[1]).astype(float)
