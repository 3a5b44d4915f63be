"""What a few runs say about the difference of two arms, and which gains they can show.

Workdirs and docs/ have one rule: Student's t, with the spread over seeds that all arms of a table
share, or else that of the pair; the choice of the test images widens the interval.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import scipy  # whose parts load when they are first used: those here take half a second

from mimetic_jax.train.record import ACCURACY, Score

ENOUGH = 3
"""Pairs of runs that a claim takes."""

LEVEL = 0.05
"""Of significance."""

ALIKE = 0.5
"""The level of the test that arms spread differently. It is high because pooling is what has to be
shown: at 0.05 three seeds don't show even a tenfold spread, and intervals would be too short."""

FOUND = 0.9
"""How often a gain is to be found that a comparison is planned for."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean difference, ours minus theirs in units of the score, with its 95% interval.

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
        """1 if ours is better, −1 if it is worse, 0 if the interval doesn't exclude zero.

        If there is a p, it decides instead, as it may be a corrected one: below 0.05. Fewer pairs
        than a claim takes say nothing, and no width neither: equal differences of a few runs don't
        show that those of others are equal.

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
    """Return the spread of several arms' runs, from the scores of each by seed; None if nothing
    tells it.

    The residual of scores = arm + seed, by least squares:

        s² = ‖residual‖² / (N − rank)

    Of two arms with the same seeds, s² is half the variance of their differences. Of A arms it has
    (A − 1) (n − 1) degrees of freedom, while a pair has n − 1.

    >>> spread = pooled_spread([{0: 1.0, 1: 2.0, 2: 3.0}, {0: 1.5, 1: 2.0, 2: 4.0}])
    >>> round(spread.sd, 3), spread.freedom
    (0.354, 2)
    """
    scores = [(arm, seed, value) for arm, of in enumerate(arms) for seed, value in of.items()]
    if not scores:
        return None
    values = np.array([value for *_, value in scores])
    columns = [np.unique([row[at] for row in scores], return_inverse=True)[1] for at in (0, 1)]
    design = np.concatenate([np.eye(column.max() + 1)[column] for column in columns], axis=1)
    fitted, _, rank, _ = np.linalg.lstsq(design, values)
    freedom = len(values) - int(rank)
    if not freedom:
        return None
    residual = values - design @ fitted
    sd = float(np.sqrt(residual @ residual / freedom))
    return Spread(sd if sd > 1e-12 * abs(values).max() else 0.0, freedom)  # else by rounding alone


def brown_forsythe(arms: Iterable[Mapping[int, float]]) -> float | None:
    """Return the p-value of arms that spread alike; None for fewer than three with ENOUGH seeds.

    What seeds share goes first: each score loses the median of its seed. An analysis of variance
    then compares the distances |eᵢ − median(e)| of each arm, without the smallest, which says
    nothing: it is 0, or equal to the next. Of two arms there is nothing to compare, as what is left
    of the one is the other's opposite.

    >>> arms = [{0: 1, 1: 4, 2: 2}, {0: 2, 1: 3, 2: 1}, {0: 3, 1: 9, 2: 22}]
    >>> round(brown_forsythe(arms), 3)
    0.219

    Reference: Robust Tests for the Equality of Variances (Brown and Forsythe 1974); Increased Power
    with Modified Forms of the Levene Test (Hines and O'Hara Hines 2000).
    """
    every, by_seed = list(arms), defaultdict[int, list[float]](list)
    for scores in every:
        for seed, score in scores.items():
            by_seed[seed].append(score)
    middle = {seed: np.median(scores) for seed, scores in by_seed.items() if len(scores) > 1}
    errors = [np.array([own[x] - middle[x] for x in own if x in middle]) for own in every]
    distances = [np.sort(abs(e - np.median(e)))[1:] for e in errors if len(e) >= ENOUGH]
    if len(distances) < 3 or not any(map(np.ptp, distances)):
        return None
    return float(scipy.stats.f_oneway(*distances).pvalue)


def table_spread(arms: Iterable[Mapping[int, float]]) -> tuple[float | None, Spread | None]:
    """Return the p of `brown_forsythe`, and the `pooled_spread` of all arms of a table.

    That is None if the test rejects it or can't be made: each pair of arms then has its own.

    >>> arms = [{0: 1, 1: 4, 2: 2}, {0: 2, 1: 3, 2: 1}]
    >>> table_spread([*arms, {0: 3, 1: 9, 2: 22}])[1]
    >>> table_spread([*arms, {0: 2, 1: 4, 2: 4}])[1].freedom
    4
    """
    every = list(arms)
    p = brown_forsythe(every)
    return p, pooled_spread(every) if p is not None and p >= ALIKE else None


def paired_difference(
    ours: Sequence[float],
    theirs: Sequence[float],
    spread: Spread | None = None,
    choice: float = 0.0,
) -> Difference:
    """Return the difference of two lists of scores, pair by pair.

    The interval is Student's t, with s of `spread` or else of the pairs, if there are ENOUGH, and
    with the variance c that the `choice` of the test examples gives the difference. That has no
    degrees of freedom of its own:

        mean ± t(freedom of s) √(2 s²/n + c)

    >>> print(paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0]))
    +1.17 [+0.45, +1.88]
    >>> print(paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0], Spread(0.5, 6)))
    +1.17 [+0.17, +2.17]
    >>> difference = paired_difference([91.0, 92.0, 93.0], [90.0, 90.5, 92.0], choice=4.0)
    >>> print(difference, difference.few_examples)
    +1.17 [-7.47, +9.80] True
    >>> print(paired_difference([91.0, 92.0], [90.0, 90.5]))
    +1.25
    """
    deltas = np.subtract(ours, theirs)
    mean, n = float(deltas.mean()), len(deltas)
    if spread is None and n >= ENOUGH:
        spread = pooled_spread(dict(enumerate(scores)) for scores in (ours, theirs))
    if spread is None:
        return Difference(mean, None, None, n)
    by_seeds = 2 * spread.sd**2 / n
    error = float(np.sqrt(by_seeds + choice))
    if not error:
        return Difference(mean, mean, mean, n)
    threshold = float(scipy.stats.t.ppf(1 - LEVEL / 2, spread.freedom))
    p = 2 * float(scipy.stats.t.sf(abs(mean) / error, spread.freedom))
    few = threshold * np.sqrt(by_seeds) < abs(mean) and p >= LEVEL
    half = threshold * error
    return Difference(mean, mean - half, mean + half, n, p, few_examples=bool(few))


_OF_INDEPENDENT = 0.25
"""The part of the variance of independent answers that is counted."""


def by_choice(shares: Sequence[float], images: int) -> float:
    """Estimate the variance of a difference of two shares by the choice of the images.

    Of shares p and q of N images that are classified rightly, each the mean over seeds, at most

        (p(1 − p) + q(1 − q)) / (4 N)

    It would be four times that if an image that is hard for one network were as hard as others for
    the next. Networks of one kind agree on the hard images: less than a sixth of that is what
    a test measures on digits. A right and a wrong answer are added to each share.

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
    """Find the smallest gain that n seeds of two arms show with 90% power, by `paired_difference`.

    With runs of standard deviation σ and a variance c by the `choice` of the test examples, the
    mean difference has the normal distribution of mean g and variance 2 σ²/n + c, and s²/σ² of a
    table that is pooled, or of a pair where it isn't, that of χ² over its degrees of freedom: the g
    is returned which exceeds the threshold of a two-sided test with probability 0.9.

    >>> f"{smallest_gain(0.03, n=5):.2f}"
    '0.08'
    """
    true = float(np.sqrt(2 * sd**2 / n + choice))
    if not true:
        return 0.0
    freedom = np.array([[n - 1], [(arms - 1) * (n - 1)]])
    variances = sd**2 * scipy.stats.chi2.ppf(_QUANTILES, freedom) / freedom
    needed = scipy.stats.t.ppf(1 - LEVEL / 2, freedom) * np.sqrt(2 * variances / n + choice)
    often = np.array([ALIKE, 1 - ALIKE])  # of arms that spread alike

    def missed(gain: float) -> float:
        detected = scipy.stats.norm.cdf([(gain - needed) / true, (-gain - needed) / true]).sum(
            axis=0
        )
        return FOUND - float(often @ detected.mean(axis=1))

    return float(scipy.optimize.brentq(missed, 0.0, 2 * needed.max() + 10 * true))


_QUANTILES = (np.arange(1000) + 0.5) / 1000

_OF_INTEREST = 5.0
"""Points that a change of the initialization may bring; most of those measured here are less."""

_HOPELESS = 10.0
"""Points: test images that show no smaller gains aren't worth training."""


def _by_images(images: int, share: float) -> float:
    """The smallest gain in points that test images show, however many seeds there are."""
    return 100 * smallest_gain(0.0, 10**9, choice=by_choice((share, share), images))


def visible(
    score: Score,
    sd: float | None,
    seeds: int,
    arms: int,
    tests: int = 0,
    share: float = 0.5,
) -> str:
    """Return the gains that runs with this standard deviation show, and that more seeds or examples
    would.

    It is None before there are any runs. What the choice of the test images does, of which a share
    is classified rightly (`by_choice`), no number of seeds undoes.

    >>> for sd, tests, share in ((None, 36, 0.5), (1.2, 10_000, 0.85)):
    ...     for part in visible(ACCURACY, sd, 3, 4, tests, share).split("; "):
    ...         print(part)
    36 test images can't answer this: they detect no gain below 19 points, however many seeds
    530 would show 5 points
    3 seeds of 4 arms and 10,000 test images detect gains above 5.7 points with 90% power
    10 seeds above 2.1 points
    """
    if arms < 2:
        return ""
    if seeds < ENOUGH:
        return f"{seeds} seed{'s' * (seeds > 1)} can't show a gain: it takes {ENOUGH}"
    images, unit = (tests, " points") if score is ACCURACY else (0, "")
    if sd is None and not images:
        gain = _format_gain(smallest_gain(1.0, seeds, arms))
        return (
            f"{seeds} seeds of {arms} arms detect gains above {gain} standard deviations of a "
            "run's score with 90% power; how much runs vary is known once there are some"
        )
    if sd is None and (lowest := _by_images(images, share)) > _HOPELESS:
        needed = float(f"{images * (lowest / _OF_INTEREST) ** 2:.1e}")
        return (
            f"{images:,} test images can't answer this: they detect no gain below "
            f"{_format_gain(lowest)}{unit}, however many seeds; {needed:,.0f} would "
            f"show {_OF_INTEREST:g}{unit}"
        )
    several, more = 10 * images, 10 if seeds < 10 else 4 * seeds
    if sd is None:
        gain, less = (_format_gain(_by_images(number, share)) for number in (images, several))
        return (
            f"{images:,} test images detect gains above {gain}{unit} with 90% power, however "
            f"many seeds; {several:,} test images above {less}{unit}"
        )

    def gain_of(seeds: int, images: int) -> str:
        choice = score.scale**2 * by_choice((share, share), images)
        return _format_gain(smallest_gain(sd, seeds, arms, choice))

    on = f" and {images:,} test images" if images else ""
    text = (
        f"{seeds} seeds of {arms} arms{on} detect gains above {gain_of(seeds, images)}{unit} "
        f"with 90% power; {more} seeds above {gain_of(more, images)}{unit}"
    )
    if not images or score.scale**2 * by_choice((share, share), images) <= 2 * sd**2 / more:
        return text  # the seeds vary more
    return f"{text}, on {several:,} test images above {gain_of(more, several)}{unit}"


def _format_gain(gain: float) -> str:
    return f"{gain:.0f}" if gain >= 10 else f"{gain:.2g}"
