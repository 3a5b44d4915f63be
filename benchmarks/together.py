"""Time K runs one after the other against K at once (`config.together = K`), as ratios.

    python -m benchmarks.together

Two models on the digits, dispatches as the trainer makes them: that of `configs/digits_vit.py`, and
one a quarter as wide and half as deep in batches of 32. Medians of 5 repeats, interleaved in one
run; above 1, training at once is faster.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from benchmarks.timing import medians
from configs import digits_vit
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.group import Group
from mimetic_jax.train.program import Program
from mimetic_jax.train.state import TrainState

COUNTS = (1, 2, 4, 8)
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


@dataclasses.dataclass(frozen=True)
class Start:
    """What a group asks of a journal: seeds, and the state before the first step."""

    seeds: Sequence[int]
    start: Callable[[], TrainState]


def group_of(program: Program, data: Any, seeds: Iterable[int]) -> Group:
    """Runs that train at once."""
    starts: Any = [Start([seed], functools.partial(program.initial_state, seed)) for seed in seeds]
    return Group(program, data, starts)


def dispatches(program: Program, data: Any, seeds: Sequence[int], steps: int) -> Callable[[], Any]:
    """A dispatch of runs that train at once."""
    group = group_of(program, data, seeds)
    arrays = program.feed.session(data, jax.random.key(0), 0, steps).arrays()
    return lambda: group.steps(arrays, steps, [1.0] * len(seeds))


def measured(program: Program, data: Any, count: int, steps: int) -> list[float]:
    """Seconds of so many runs one after the other, and at once."""
    alone = [dispatches(program, data, [seed], steps) for seed in range(count)]

    def one_by_one() -> None:
        for dispatch in alone:
            jax.block_until_ready(dispatch())

    return medians([one_by_one, dispatches(program, data, range(count), steps)])


def main() -> None:
    """Print a line per model and K."""
    print(f"{'model':20} K   one after the other s   at once s   ratio")
    for name, (arguments, batch, steps) in SIZES.items():
        program, data = prepared(arguments, batch, steps)
        for count in COUNTS:
            one_by_one, at_once = measured(program, data, count, steps)
            ratio = one_by_one / at_once
            print(f"{name:20} {count} {one_by_one:23.3f} {at_once:11.3f} {ratio:7.2f}", flush=True)


if __name__ == "__main__":
    main()
