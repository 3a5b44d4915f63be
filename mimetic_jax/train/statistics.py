"""What a few runs say about the difference of two arms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.optimize
import scipy.stats

ENOUGH = 3
"""Pairs of runs that a claim takes."""

LEVEL = 0.05
"""Of significance."""

FOUND = 0.9
"""How often a gain is to be found that a comparison is planned for."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean difference in units of the score, with its 95 % confidence interval.

    Attributes:
        mean: ours minus theirs.
        low, high: of the interval; None where nothing supports one.
        n: pairs of runs.
        p: of a difference of 0, two-sided; corrected where several are tested at once. None where
            nothing supports one.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    p: float | None = None

    def side(self, higher: bool) -> int:
        """1 if ours is better, -1 if it is worse, 0 where the interval doesn't exclude zero.

        Where there is a p, it decides instead, as it may be a corrected one: below .05.

        An interval of no width says nothing either: equal differences of a few runs are no sign
        that those of others are equal.

        Args:
            higher: whether more is better.

        >>> Difference(-2, -3, -1, n=3).side(higher=False), Difference(1, 1, 1, n=3).side(True)
        (1, 0)
        """
        if self.low is None or self.high is None or self.low == self.high:
            return 0
        sign = (self.low > 0) - (self.high < 0)
        if self.p is not None:
            sign = int(np.sign(self.mean)) if self.p < LEVEL else 0
        return sign if higher else -sign

    def verdict(self, higher: bool) -> str:
        """What it says of ours, in words: a claim only where enough seeds agree.

        >>> Difference(1, 0.5, 1.5, n=5).verdict(higher=True)
        'better'
        >>> Difference(1, -1, 3, n=2).verdict(higher=True)
        'too few seeds (3 needed)'
        """
        if self.n < ENOUGH:
            return f"too few seeds ({ENOUGH} needed)"
        return {1: "better", -1: "worse", 0: "no difference shown"}[self.side(higher)]

    def __str__(self) -> str:
        return f"{self:.2f}"

    def __format__(self, spec: str) -> str:
        if self.low is None:
            return f"{self.mean:+{spec}}"
        return f"{self.mean:+{spec}} [{self.low:+{spec}}, {self.high:+{spec}}]"


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """The difference of two lists of scores, pair by pair.

    The interval is Student's t over the differences of runs that share a seed; None for n < 2.

    Args:
        ours, theirs: scores by seed.

    >>> print(paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0]))
    +1.17 [+0.45, +1.88]
    """
    deltas = np.subtract(ours, theirs)
    mean, n = float(deltas.mean()), len(deltas)
    if n < 2:
        return Difference(mean, None, None, n)
    error = float(deltas.std(ddof=1) / np.sqrt(n))
    half = float(scipy.stats.t.ppf(1 - LEVEL / 2, n - 1)) * error
    p = 2 * float(scipy.stats.t.sf(abs(mean) / error, n - 1)) if error else None
    return Difference(mean, mean - half, mean + half, n, p)


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


def smallest_gain(spread: float, n: int, of: int = 1) -> float:
    """The smallest gain that n seeds of two arms show nine times of ten, by `paired_difference`.

    With differences of standard deviation √2 s, as of independent runs, |t| has the noncentral t
    distribution of n − 1 degrees of freedom and noncentrality g √n / (√2 s): the g is returned for
    which it exceeds the threshold of a two-sided test with probability .9.

    Args:
        spread: s, the standard deviation of an arm's scores over seeds.
        n: seeds that both arms share, at least 2.
        of: number of arms that are tested at once: the level is 0.05 / `of`, which is Holm's for
            the smallest p.

    >>> print(f"{smallest_gain(0.03, n=5):.3f} {smallest_gain(0.03, n=5, of=8):.3f}")
    0.083 0.145
    """
    threshold = scipy.stats.t.ppf(1 - LEVEL / 2 / of, n - 1)
    # SciPy's noncentral t is NaN far out: average over the quantiles of the estimated deviation.
    quantiles = (np.arange(1000) + 0.5) / 1000
    needed = threshold * np.sqrt(scipy.stats.chi2.ppf(quantiles, n - 1) / (n - 1))

    def missed(shift: float) -> float:
        found = scipy.stats.norm.sf(needed - shift) + scipy.stats.norm.cdf(-needed - shift)
        return FOUND - float(found.mean())

    shift = scipy.optimize.brentq(missed, 0.0, 2 * needed.max() + 10)
    return float(shift * np.sqrt(2 / n) * spread)
