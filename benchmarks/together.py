"""Time K runs one after the other against K at once (`config.together = K`), as ratios.

    python benchmarks/together.py

Two models on the digits, dispatches as the trainer makes them: that of `configs/digits_vit.py`, and
one a quarter as wide and half as deep in batches of 32. Medians of 5 repeats, interleaved in one
run; above 1, training at once is faster.
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from configs import digits_vit
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.program import Program
from mimetic_jax.train.together import Alone, Group, Several

REPEATS, COUNTS = 5, (1, 2, 4, 8)
SIZES = {"digits_vit": ("", 128, 2), "width 16, depth 2": ("width=16,depth=2", 32, 10)}
"""Arguments of the config, batch, and steps per dispatch."""


def prepared(arguments: str, batch: int, steps: int) -> tuple[Program, Any]:
    """The program of a size, and its data."""
    config = digits_vit.get_config(arguments)
    config.batch, config.max_dispatch = batch, steps
    comparison = Comparison(config, lambda line: None)
    comparison.open()
    arm = comparison.arms["default"]
    return arm.program, arm.data


def seconds(groups: Sequence[Group], arrays: Any, count: int, steps: int) -> float:
    """Wall time of one dispatch of each group, one after the other."""
    began = time.perf_counter()
    for group in groups:
        jax.block_until_ready(group.steps(arrays, steps, [1.0] * count))
    return time.perf_counter() - began


def medians(program: Program, data: Any, count: int, steps: int) -> tuple[float, float]:
    """Seconds of so many runs one after the other, and at once."""
    seeds = range(count)
    states = [program.initial_state(seed, ()) for seed in seeds]
    several = [Several(program, data, seeds, states)]
    alone = [Alone(program, data, seed, states[seed]) for seed in seeds]
    arrays = program.feed.session(data, jax.random.key(0), 0, steps).arrays()
    times = [
        (seconds(alone, arrays, 1, steps), seconds(several, arrays, count, steps))
        for _ in range(REPEATS + 1)  # the first compiles
    ]
    one_by_one, at_once = (statistics.median(column) for column in zip(*times[1:], strict=True))
    return one_by_one, at_once


def main() -> None:
    """Print a line per model and K."""
    print(f"{'model':20} K   one after the other s   at once s   ratio")
    for name, (arguments, batch, steps) in SIZES.items():
        program, data = prepared(arguments, batch, steps)
        for count in COUNTS:
            one_by_one, at_once = medians(program, data, count, steps)
            ratio = one_by_one / at_once
            print(f"{name:20} {count} {one_by_one:23.3f} {at_once:11.3f} {ratio:7.2f}", flush=True)


if __name__ == "__main__":
    main()
