"""What a few runs say about the difference of two arms."""

from __future__ import annotations

import dataclasses
import functools
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

DRAWS = 10_000
"""Of a bootstrap: its percentiles are then reproducible to two digits."""


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


def paired_difference(ours: Sequence[float], theirs: Sequence[float], of: int = 1) -> Difference:
    """The difference of two lists of scores, pair by pair.

    The interval is Student's t over the differences of runs that share a seed; None for n < 2.

    Args:
        ours, theirs: scores by seed.
        of: number of arms of which `ours` is the best. The interval then holds for all of them at
            once, at the level 1 − 0.05 / `of` (Bonferroni): the best of many is better than another
            one by chance alone.

    >>> print(paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0]))
    +1.17 [+0.45, +1.88]
    >>> print(paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0], of=8))
    +1.17 [-0.93, +3.26]
    """
    deltas = np.subtract(ours, theirs)
    mean, n = float(deltas.mean()), len(deltas)
    if n < 2:
        return Difference(mean, None, None, n)
    error = float(deltas.std(ddof=1) / np.sqrt(n))
    half = float(scipy.stats.t.ppf(1 - LEVEL / 2 / of, n - 1)) * error
    p = min(1.0, of * 2 * float(scipy.stats.t.sf(abs(mean) / error, n - 1))) if error else None
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


def accuracy_difference(ours: float, theirs: float, examples: int) -> Difference:
    """The difference of two accuracies of one seed, with a bootstrap over test images.

    An accuracy whose test images are drawn again, with replacement, is a binomial draw. Both are
    drawn independently here. Two networks mostly fail on the same images, so the interval of
    images drawn in pairs would be narrower: this one claims too little rather than too much. It
    holds for these two networks, and says nothing of another seed.

    Args:
        ours, theirs: in percent.
        examples: of the test set.

    >>> print(accuracy_difference(91.0, 90.0, 10_000))
    +1.00 [+0.17, +1.83]
    """
    random = np.random.default_rng(0)
    drawn = [
        100 * random.binomial(examples, np.clip(score / 100, 0, 1), DRAWS) / examples
        for score in (ours, theirs)
    ]
    low, high = np.percentile(drawn[0] - drawn[1], [2.5, 97.5])
    return Difference(ours - theirs, float(low), float(high), 1)


@dataclasses.dataclass(frozen=True)
class Improvement:
    """Probability that a run of one arm beats a run of the other, with its 95 % interval."""

    probability: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.probability:.2f} [{self.low:.2f}, {self.high:.2f}]"


def probability_of_improvement(
    ours: Sequence[float], theirs: Sequence[float], higher: bool = True
) -> Improvement:
    """How often a run of ours beats a run of theirs, over all pairs of runs; a tie counts half.

        P(X > Y) = Σ_i Σ_j (1[x_i > y_j] + ½ 1[x_i = y_j]) / (N M)

    The interval is a percentile bootstrap that draws the runs of each arm again.

    Args:
        ours, theirs: scores of N and M runs; at least 5 each, or the interval means nothing.
        higher: whether more is better.

    Raises:
        ValueError: for fewer than 5 runs.

    Reference: Agarwal et al., *Deep Reinforcement Learning at the Edge of the Statistical
    Precipice*, section 4.3.

    >>> print(probability_of_improvement([5, 6, 7, 8, 9], [1, 2, 3, 4, 5]))
    0.98 [0.92, 1.00]
    """
    if min(len(ours), len(theirs)) < 5:
        raise ValueError(f"{len(ours)} and {len(theirs)} runs: 5 of each arm are needed")
    sign = 1 if higher else -1
    x, y = sign * np.asarray(ours, float), sign * np.asarray(theirs, float)
    wins = (np.sign(x[:, None] - y[None, :]) + 1) / 2
    rows, columns = _drawn_again(len(x), len(y))
    means = np.einsum("bi,ij,bj->b", rows, wins, columns, optimize=True)
    low, high = np.percentile(means, [2.5, 97.5])
    return Improvement(float(wins.mean()), float(low), float(high))


@functools.lru_cache(maxsize=16)
def _drawn_again(*counts: int) -> tuple[np.ndarray, ...]:
    """The part of each draw that each run has, [DRAWS, N] for each number of runs N."""
    random = np.random.default_rng(0)
    # How often each run is drawn: multinomial counts.
    return tuple(
        random.multinomial(count, np.full(count, 1 / count), DRAWS) / count for count in counts
    )
