"""How long a training step takes: one rule, whichever framework takes it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

STEPS = 50
"""In a group: the host gets ahead of the device within one, as it does in a training."""


def seconds_per_step(run: Callable[[int], None], seconds: float) -> tuple[float, int]:
    """The median over groups of steps, after a group that doesn't count.

    Args:
        run: takes so many steps and waits until the device is done.
        seconds: that the groups take together, at least; there are three or more.

    Returns:
        Seconds of a step, and the number of groups.
    """
    run(STEPS)
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        began = time.perf_counter()
        run(STEPS)
        times.append(time.perf_counter() - began)
    return statistics.median(times) / STEPS, len(times)
