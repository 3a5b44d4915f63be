"""What each arm of a comparison reached, and what that says about its scheme."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from mimetic_jax.train.record import (
    ACCURACY,
    CONTROLS,
    NOISE,
    PERMUTED,
    SCATTERED,
    SCORES,
    Record,
    Score,
)
from mimetic_jax.train.statistics import (
    ALIKE,
    ENOUGH,
    Difference,
    Spread,
    by_choice,
    holm,
    paired_difference,
    table_spread,
)

DEFAULT = "default"
"""The arm that others are compared with, if a comparison has it."""

POSITIONS = "sincos"
"""The default with sin-cos positions: what a gain over the default's learned positions leaves."""

BASELINES = (DEFAULT, POSITIONS, *CONTROLS)
"""What an arm is compared with: these two arms and its own controls, if a table has them."""

SHOWN = {NOISE: "norm-matched"}
"""Names of baselines for readers, where they aren't those of `BASELINES`."""

COMPARED = (*(f"Δ {SHOWN.get(name, name)} [95% CI]" for name in BASELINES), "verdict")
"""Columns of every table: an arm's differences, and what they say."""


@dataclasses.dataclass(frozen=True)
class ArmResult:
    """The finished runs of an arm, by seed.

    Attributes:
        row: the arm's row in a figure of several comparisons.
        rate: the learning rate of its runs; None if it chose its own, or that isn't known.
        differences: the differences from those of `BASELINES` that it was `compared` with.
    """

    arm: str
    runs: Mapping[int, Record]
    row: str = ""
    rate: float | None = None
    differences: Mapping[str, Difference] = dataclasses.field(default_factory=dict)

    @property
    def score(self) -> Score:
        """What is compared."""
        return next((SCORES[record.score] for record in self.runs.values()), ACCURACY)

    @property
    def reached(self) -> dict[int, float]:
        """The score by seed."""
        return {seed: record.value for seed, record in self.runs.items()}

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.reached.values())))

    @property
    def sd(self) -> float | None:
        """Standard deviation over seeds; None for one."""
        values = list(self.reached.values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def mean_and_sd(self) -> str:
        """Mean ± sd, with the digits of the score."""
        form = f".{self.score.digits}f"
        return f"{self.mean:{form}}" + (f" ± {self.sd:{form}}" if self.sd is not None else "")

    def compared(self) -> tuple[str, ...]:
        """Return its cells of the columns `COMPARED`."""
        differences, form = self.differences, f".{self.score.digits}f"
        deltas = (
            f"{differences[name]:{form}}" if name in differences else "" for name in BASELINES
        )
        return *deltas, self.verdict

    @property
    def verdict(self) -> str:
        """What its differences say, in a few words; empty if there are none."""
        return verdict(self.differences, self.score.higher)

    @property
    def mean_seconds(self) -> float:
        return float(np.mean([record.seconds for record in self.runs.values()]))

    @property
    def baselines(self) -> dict[str, str]:
        """The arms that it is compared with, by the names of `BASELINES`."""
        arms = {DEFAULT: DEFAULT}
        if self.arm != DEFAULT:
            arms[POSITIONS] = POSITIONS
        return arms | {kind: f"{before}{self.arm}" for kind, before in CONTROLS.items()}

    def versus(self, other: ArmResult, spread: Spread | None) -> Difference | None:
        """Return the difference to another arm, by the spread of a table, if its arms have one, and
        the choice of the test images; None without a seed that both have."""
        if self.arm == other.arm:
            return None
        shared = sorted(self.reached.keys() & other.reached.keys())
        if not shared:
            return None
        ours, theirs = ([result.reached[seed] for seed in shared] for result in (self, other))
        return paired_difference(ours, theirs, spread, self._choice(other))

    @property
    def images(self) -> int:
        """The number of test images, whose choice widens intervals; for texts 0: they have enough
        tokens."""
        if self.score is not ACCURACY:
            return 0
        return max((run.examples for run in self.runs.values()), default=0)

    def _choice(self, other: ArmResult) -> float:
        """The variance of a difference by the choice of the test images, which all seeds share."""
        shares = [result.mean / self.score.scale for result in (self, other)]
        return self.score.scale**2 * by_choice(shares, self.images)


def spread_rule(results: Iterable[ArmResult]) -> tuple[str, str] | None:
    """By which spread the intervals of a table are, and the numbers of the test that decides it;
    None if it can't be made, and each pair has its own."""
    p, spread = table_spread(result.reached for result in results)
    if p is None:
        return None
    if spread is None:
        return f"Intervals by each pair's own spread, as Brown–Forsythe p < {ALIKE}", f"{p:.3g}"
    numbers = f"{p:.3g}, {spread.freedom} degrees of freedom"
    return f"Intervals by the spread of all arms, as Brown–Forsythe p ≥ {ALIKE}", numbers


def compared(results: Sequence[ArmResult]) -> list[ArmResult]:
    """Arms with their differences from the baselines among them."""
    arms = {result.arm: result for result in results}
    _, spread = table_spread(result.reached for result in results)

    def differences(result: ArmResult) -> Iterator[tuple[str, Difference]]:
        for name, arm in result.baselines.items():
            other = arms.get(arm)
            if other and (difference := result.versus(other, spread)):
                yield name, difference

    return [
        dataclasses.replace(result, differences=dict(differences(result))) for result in results
    ]


def corrected(results: Sequence[ArmResult]) -> list[ArmResult]:
    """Arms with the p of those that aren't controls corrected for their number (Holm)."""
    entrants = [result for result in results if not result.arm.startswith(tuple(CONTROLS.values()))]
    differences: dict[str, dict[str, Difference]] = defaultdict(dict)
    for name in BASELINES:
        adjusted = holm([result.differences.get(name) for result in entrants])
        for result, difference in zip(entrants, adjusted, strict=True):
            differences[result.arm] |= {name: difference} if difference else {}
    return [
        dataclasses.replace(result, differences=differences[result.arm])
        if result in entrants
        else result
        for result in results
    ]


_BY = {SCATTERED: "improvement by locality", PERMUTED: "improvement by alignment"}
"""What an improvement over all controls is due to, by the strictest of them."""


def verdict(differences: Mapping[str, Difference], higher: bool) -> str:
    """Judge an arm by its differences from `BASELINES`, in the words of docs/results.md.

    A control with fewer than ENOUGH seeds counts as not trained.

    >>> gain, around = Difference(1.5, 1, 2, n=3), Difference(0, -1, 1, n=3)
    >>> verdict({"default": gain, "noise": gain, "permuted": around}, higher=True)
    'improvement over norm-matched'
    >>> verdict({"default": gain, "noise": around}, higher=False)
    'worse'
    """
    gain = differences.get(DEFAULT) or differences.get(POSITIONS)
    controls = {
        kind: differences[kind].side(higher)
        for kind in CONTROLS
        if kind in differences and differences[kind].n >= ENOUGH
    }
    side = gain.side(higher) if gain else None
    if side == -1:
        return "worse"
    if worse := next((kind for kind, control in controls.items() if control == -1), None):
        return f"worse than {SHOWN.get(worse, worse)}"
    if side == 0 or not (gain or 1 in controls.values()):
        few = next((difference.few_examples for difference in differences.values()), None)
        return {None: "", False: "inconclusive", True: "inconclusive: few test images"}[few]
    if not (gain and controls):
        return "better"
    if set(controls.values()) == {1}:
        by = next((kind for kind in _BY if kind in controls), NOISE)
        return _BY.get(by, "improvement over norm-matched")
    return (
        "improvement over norm-matched"
        if controls.get(NOISE) == 1
        else "improvement; not over controls"
    )


def controls_of(results: Iterable[ArmResult]) -> list[str]:
    """Return the arms that are controls of others."""
    arms = [result.arm for result in results]
    return sorted({f"{kind}{arm}" for kind in CONTROLS.values() for arm in arms} & set(arms))


def conclusions(results: Sequence[ArmResult]) -> Iterator[str]:
    """Yield a line for each arm that is compared, and no control: its verdict and its differences.

    If all arms have one learning rate, that is the last line: another may suit an arm better.
    """
    beside = {POSITIONS, *controls_of(results)}
    for result in results:
        if result.verdict and result.arm not in beside:
            form = f".{result.score.digits}f"
            gains = (
                f"{gain:{form}} over {SHOWN.get(name, name)}"
                for name, gain in result.differences.items()
            )
            yield f"{result.arm}: {result.verdict} ({', '.join(gains)})"
    rates = {result.rate for result in results}
    if len(results) > 1 and len(rates) == 1 and None not in rates:
        yield f"All arms have the learning rate {rates.pop():g}; each may do better at another."
