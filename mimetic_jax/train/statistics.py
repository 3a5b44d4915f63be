"""What a few runs say about the difference of two arms.

One engine serves workdirs and docs/: Student's t with the spread of all arms of a table, and counts
with Fisher's exact test if scores are bounded and seeds either succeed or fail.
"""

from __future__ import annotations

import dataclasses
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
        counts: how many runs of ours and of theirs reach a goal, if these are compared.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    p: float | None = None
    counts: tuple[int, int] | None = None

    def side(self, higher: bool) -> int:
        """1 if ours is better, -1 if it is worse, 0 if the interval doesn't exclude zero.

        If there is a p, it decides instead, as it may be a corrected one: below .05. No width says
        nothing: equal differences of a few runs are no sign that those of others are equal.

        >>> Difference(-2, -3, -1, n=3).side(higher=False), Difference(1, 1, 1, n=3).side(True)
        (1, 0)
        """
        if self.counts is not None:
            sign = int(np.sign(self.counts[0] - self.counts[1]))
        elif self.low is None or self.high is None or self.low == self.high:
            return 0
        else:
            sign = (self.low > 0) - (self.high < 0)
        if self.p is not None:
            sign = (sign or int(np.sign(self.mean))) if self.p < LEVEL else 0
        return sign if higher else -sign

    def __str__(self) -> str:
        return f"{self:.2f}"

    def __format__(self, spec: str) -> str:
        if self.counts is not None:
            ours, theirs = (f"{count} of {self.n}" for count in self.counts)
            return f"{self.mean:+{spec}} ({ours}, {theirs})"
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
    return Spread(float(np.sqrt(residual @ residual / freedom)), freedom)


_Numbers: TypeAlias = float | np.ndarray

_MORE = 0.1
"""Level of the test that a pair spreads more than its table."""


def paired_difference(
    ours: Sequence[float], theirs: Sequence[float], spread: Spread | None = None
) -> Difference:
    """The difference of two lists of scores, pair by pair; of one pair alone without an interval.

    The interval is Student's t: mean ± t(freedom) s √(2/n), with s of the table, or of the pair
    alone unless given. A spread of three differences alone is too small by chance too often. If the
    pair spreads more than its table (F test at the level .1), the interval is that of the pair
    alone if that is wider: when one arm's deviation is up to five times that of the others,
    95-percent intervals then hold the truth in 82 to 95 of 100 cases; without this test in 57 to
    95.

    >>> print(paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0]))
    +1.17 [+0.45, +1.88]
    >>> print(paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0], Spread(0.5, 6)))
    +1.17 [+0.17, +2.17]
    """
    deltas = np.subtract(ours, theirs)
    mean, n = float(deltas.mean()), len(deltas)
    own = Spread(float(deltas.std(ddof=1) / np.sqrt(2)), n - 1) if n > 1 else None
    used = spread or own
    if used is None:
        return Difference(mean, None, None, n)
    if spread and own and bool(_alone(own.sd, own.freedom, spread.sd, spread.freedom)):
        used = own
    error = used.sd * float(np.sqrt(2 / n))
    half = float(scipy.stats.t.ppf(1 - LEVEL / 2, used.freedom)) * error
    p = 2 * float(scipy.stats.t.sf(abs(mean) / error, used.freedom)) if error else None
    return Difference(mean, mean - half, mean + half, n, p)


def _alone(own: _Numbers, few: int, table: _Numbers, many: int) -> np.ndarray:
    """Whether the interval is that of the pair alone: from deviations and degrees of freedom."""
    ratio = np.square(own / np.maximum(table, 1e-300))
    quantiles = scipy.stats.t.ppf(1 - LEVEL / 2, [few, many])
    wider = own * quantiles[0] > table * quantiles[1]
    return np.logical_and(wider, scipy.stats.f.sf(ratio, few, many) < _MORE)


def counted_difference(ours: Sequence[float], theirs: Sequence[float], goal: float) -> Difference:
    """The difference of scores that end at a bound or far from it, by counts.

    Their mean has no normal distribution: p is that of Fisher's exact test of how many of each
    reach the goal.

    >>> found = counted_difference([3.0, 20.0, 40.0, 60.0, 50.0], [100.0] * 5, 95.0)
    >>> print(found, round(found.p, 4))
    -65.40 (0 of 5, 5 of 5) 0.0079
    """
    reached, n = [int(np.sum(np.array(one) >= goal)) for one in (ours, theirs)], len(ours)
    p = scipy.stats.fisher_exact([reached, [n - count for count in reached]]).pvalue
    mean = float(np.mean(np.subtract(ours, theirs)))
    return Difference(mean, None, None, n, float(p), (reached[0], reached[1]))


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


def smallest_gain(sd: float, n: int, of: int = 1, arms: int = 2) -> float:
    """The smallest gain that n seeds of two arms show nine times of ten, by `paired_difference`.

    With runs of standard deviation s, the mean difference has the normal distribution of mean g and
    deviation s √(2/n). The squares of the deviations that `paired_difference` looks at, of the pair
    and of the rest of a table of so many arms, have χ² distributions: the g is returned which
    exceeds the threshold of a two-sided test with probability .9. If `of` arms are tested at once,
    the level is 0.05 / `of`, which is Holm's for the smallest p.

    >>> [f"{smallest_gain(0.03, n=5, **more):.3f}" for more in ({}, {"of": 8}, {"arms": 4})]
    ['0.083', '0.145', '0.067']
    """
    few, many = n - 1, (arms - 1) * (n - 1)
    quantiles = (np.arange(300) + 0.5) / 300
    pair = scipy.stats.chi2.ppf(quantiles, few)
    rest = scipy.stats.chi2.ppf(quantiles, many - few) if many > few else np.zeros(1)
    own = np.sqrt(pair / few)[:, None]
    table = np.sqrt((pair[:, None] + rest) / many)
    small, large = scipy.stats.t.ppf(1 - LEVEL / 2 / of, [many, few])
    needed = np.where(_alone(own, few, table, many), own * large, table * small)

    def missed(shift: float) -> float:
        found = scipy.stats.norm.sf(needed - shift) + scipy.stats.norm.cdf(-needed - shift)
        return FOUND - float(found.mean())

    shift = scipy.optimize.brentq(missed, 0.0, 2 * needed.max() + 10)
    return float(shift * np.sqrt(2 / n) * sd)
