"""Wall times, of several ways in turn, so that other load on the machine meets all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from mimetic_jax.analysis.timing import timed
from mimetic_jax.host.sums import compile_right_sums

compile_right_sums()  # what is timed is what users run

REPEATS = 5


def medians(functions: Sequence[Callable[[], Any]], pause: float = 0.0) -> list[float]:
    """Median seconds of a call of each function, over `REPEATS` rounds after one that compiles.

    The pause before each call lets the threads of the call before stop spinning.
    """

    def measured(function: Callable[[], Any]) -> float:
        time.sleep(pause)
        return timed(function)[0]

    rounds = [[measured(function) for function in functions] for _ in range(REPEATS + 1)]
    return [statistics.median(column) for column in zip(*rounds[1:], strict=True)]
