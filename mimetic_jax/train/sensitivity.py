"""Which gains a comparison can show: to read before a training, and beside its table."""

from __future__ import annotations

from mimetic_jax.train.record import ACCURACY, Score
from mimetic_jax.train.statistics import ENOUGH, by_choice, smallest_gain

_OF_INTEREST = 5.0
"""Points that a change of the initialization may bring; most of those measured here are less."""


def visible(
    score: Score,
    sd: float | None,
    seeds: int,
    arms: int,
    tests: int = 0,
    share: float = 0.5,
) -> str:
    """The gains that runs with this standard deviation show, and that more seeds or examples would.

    It is None before there are any runs. What the choice of the test images does, of which a share
    is classified rightly (`by_choice`), no number of seeds undoes.

    >>> for sd, tests, share in ((None, 36, 0.5), (1.2, 10_000, 0.85)):
    ...     for part in visible(ACCURACY, sd, 3, 4, tests, share).split("; "):
    ...         print(part)
    36 test images can't answer this: they show gains from 19 points, however many seeds
    530 would show 5 points
    3 seeds of 4 arms and 10,000 test images show gains from 5.9 points, nine times of ten
    10 seeds from 2.1 points
    """
    if (reason := _nothing(seeds, arms)) is not None:
        return reason
    images = tests if score is ACCURACY else 0
    if sd is None and not images:
        gain = _shown(smallest_gain(1.0, seeds, arms))
        return (
            f"{seeds} seeds of {arms} arms show gains from {gain} standard deviations of a run's "
            "score, nine times of ten; how much runs vary is known once there are some"
        )

    def choice(images: int) -> float:
        return score.scale**2 * by_choice((share, share), images)

    def gain_of(seeds: int, images: int) -> str:
        return _shown(smallest_gain(sd or 0.0, seeds, arms, choice(images)))

    unit, several = " points" if score.scale == 100 else "", 10 * images
    more = 10 if seeds < 10 else 4 * seeds
    if sd is None and (lowest := smallest_gain(0.0, seeds, arms, choice(images))) > 10:
        needed = float(f"{images * (lowest / _OF_INTEREST) ** 2:.1e}")
        return (
            f"{images:,} test images can't answer this: they show gains from {_shown(lowest)}"
            f"{unit}, however many seeds; {needed:,.0f} would show {_OF_INTEREST:g}{unit}"
        )
    if sd is None:
        return (
            f"{images:,} test images show gains from {gain_of(seeds, images)}{unit}, nine times of "
            f"ten, however many seeds; {several:,} test images from {gain_of(seeds, several)}{unit}"
        )
    on = f" and {images:,} test images" if images else ""
    text = (
        f"{seeds} seeds of {arms} arms{on} show gains from {gain_of(seeds, images)}{unit}, "
        f"nine times of ten; {more} seeds from {gain_of(more, images)}"
    )
    if choice(images) <= 2 * sd**2 / more:  # the seeds vary more
        return text + unit
    return f"{text}, on {several:,} test images from {gain_of(more, several)}{unit}"


def _nothing(seeds: int, arms: int) -> str | None:
    """Why nothing can be shown; empty if there is nothing to compare."""
    if arms < 2:
        return ""
    if seeds < ENOUGH:
        return f"{seeds} seed{'s' * (seeds > 1)} can't show a gain: it takes {ENOUGH}"
    return None


def _shown(gain: float) -> str:
    return f"{gain:.0f}" if gain >= 10 else f"{gain:.2g}"
