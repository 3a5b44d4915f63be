"""Time a training step, by the same rule in every framework."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

STEPS = 50
"""Per group: within a group the host runs ahead of the device, as in training."""


def seconds_per_step(run: Callable[[int], None], seconds: float) -> tuple[float, int]:
    """Median seconds per step over groups of steps, after one group of warm-up.

    Args:
        run: takes a number of steps and waits until the device is done.
        seconds: the least total time of the groups; there are at least three.

    Returns:
        Seconds per step, and the number of groups.
    """
    run(STEPS)
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        began = time.perf_counter()
        run(STEPS)
        times.append(time.perf_counter() - began)
    return statistics.median(times) / STEPS, len(times)
