"""Which gains a comparison can show: to read before a training, and beside its table."""

from __future__ import annotations

from mimetic_jax.train.record import ACCURACY, Score
from mimetic_jax.train.statistics import ENOUGH, smallest_gain


def visible(
    score: Score,
    sd: float | None,
    seeds: int,
    arms: int,
    tests: int = 0,
    share: float = 0.5,
    at_once: int = 1,
) -> str:
    """The gains that runs with this standard deviation show, and that more seeds or examples would.

    It is None before there are any runs. An accuracy on N images varies by √(p(1 − p) / N) for the
    choice of the images alone, of which the share p is classified rightly: runs are taken to vary
    by no less, whatever their seeds say. `at_once` arms are compared with p corrected for their
    number.

    >>> for sd, tests, share in ((None, 36, 0.5), (1.2, 10_000, 0.85)):
    ...     for part in visible(ACCURACY, sd, 3, 4, tests, share).split("; "):
    ...         print(part)
    3 seeds of 4 arms and 36 test images show gains from 27 points, nine times of ten
    10 seeds from 13, on 360 test images from 4 points
    3 seeds of 4 arms and 10,000 test images show gains from 3.8 points, nine times of ten
    10 seeds from 1.8 points
    """
    if (reason := _nothing(score, seeds, arms)) is not None:
        return reason
    images = tests if score is ACCURACY else 0
    if sd is None and not images:
        gain = _gain(1.0, seeds, arms, at_once)
        return (
            f"{seeds} seeds of {arms} arms show gains from {gain} standard deviations of a run's "
            "score, nine times of ten; how much runs vary is known once there are some"
        )
    sd, by_images = sd or 0.0, _of_images(share, images) if images else 0.0
    unit, more = " points" if score.scale == 100 else "", 10 if seeds < 10 else 4 * seeds
    on = f" and {images:,} test images" if images else ""
    among = f", {at_once} of them compared at once," if at_once > 1 else ""
    now, then = (_gain(max(sd, by_images), count, arms, at_once) for count in (seeds, more))
    text = (
        f"{seeds} seeds of {arms} arms{among}{on} show gains from {now}{unit}, nine times of ten; "
        f"{more} seeds from {then}"
    )
    if by_images <= sd:
        return text + unit
    several = 10 * images
    fewer = max(sd, _of_images(share, several))
    return f"{text}, on {several:,} test images from {_gain(fewer, more, arms, at_once)}{unit}"


def _nothing(score: Score, seeds: int, arms: int) -> str | None:
    """Why nothing can be shown; empty if there is nothing to compare."""
    if arms < 2:
        return ""
    if seeds < ENOUGH:
        return f"{seeds} seed{'s' * (seeds > 1)} can't show a gain: it takes {ENOUGH}"
    if score.goal is not None:
        return (
            f"seeds that reach {score.goal:g} {score.label} are counted: "
            f"{seeds} of {seeds} against none "
            + ("shows a gain" if seeds > ENOUGH else "shows no gain yet, 4 of 4 would")
        )
    return None


def _of_images(share: float, count: int) -> float:
    """Standard deviation of an accuracy in points."""
    return 100 * (share * (1 - share) / count) ** 0.5


def _gain(sd: float, seeds: int, arms: int, at_once: int) -> str:
    found = smallest_gain(sd, seeds, at_once, arms)
    return f"{found:.0f}" if found >= 10 else f"{found:.2g}"
