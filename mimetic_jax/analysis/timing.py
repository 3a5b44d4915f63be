"""How long a comparison trains on this machine, from a few timed steps."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.table import duration, paragraph
from mimetic_jax.data.files.sources import UnreadableImages
from mimetic_jax.train import rates
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.loop import evaluation_every
from mimetic_jax.train.state import order_key, stream

T = TypeVar("T")

_SECONDS = 1.0
"""For which steps are timed, at least one."""

_LONG = 3600.0
"""Seconds from which a training run is long."""

_MOST_FLOPS = 5e11
"""Of a step that a CPU is asked to time: some seconds of two cores."""


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Wall time of one call, in seconds, until its arrays are computed; and what it returns."""
    began = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - began, result


def estimate(comparison: Comparison, shorter: str = "") -> str:
    """Return how long `train` takes, one run after the other; steps are compiled and timed for it.

    The line says why if nothing is timed, as without the data; of a long training how it is made
    `shorter`.

    Raises:
        UnreadableImages: as `train` would.
    """
    try:
        _read(comparison)
        arms = list(comparison.arms.values())
        costs = {mark: _costs(arm) for mark, arm in {id(arm.program): arm for arm in arms}.items()}
    except UnreadableImages:
        raise
    except InputError as error:
        return paragraph(f"time: not estimated, {error}", "      ")
    config, searching = comparison.config, rates.searching(comparison.config)
    tries = len(rates.ladder(config).first) if searching else 0  # with one seed
    images = tries and config.task == "images" and not config.data.per_seed
    held_out = rates.HELD_OUT if images else 0.0
    # Trials of images hold some out: other sizes are another program.
    seconds = sum(compiled for compiled, _ in costs.values()) * (2 if held_out else 1)
    of_seed = sum(costs[id(arm.program)][1] for arm in arms)
    of_rate = sum(costs[id(comparison.arms[name].program)][1] for name in searching)
    of_rate *= 1 if config.steps else 1 - held_out
    seconds += len(config.seeds) * of_seed + tries * of_rate
    runs = len(arms) * len(config.seeds) + len(searching) * tries
    some = f"{runs} runs" if runs > 1 else "1 run"
    said = [f"about {duration(seconds)} for {some} on this machine"]
    if tries:
        further = duration(of_rate / len(searching))
        said = [f"at least {said[0]}", f"each further learning rate of an arm: about {further}"]
    said += [shorter] if shorter and seconds > _LONG else []
    return paragraph(f"time: {'; '.join(said)}", "      ")


def check_images(comparison: Comparison) -> None:
    """Raise UnreadableImages as `train` would; what else the data lacks `estimate` says."""
    try:
        _read(comparison)
    except UnreadableImages:
        raise
    except InputError:
        return


def _read(comparison: Comparison) -> None:
    """Read the data, once, and check images that stream, as training does first."""
    comparison.arms.load_data()
    for source in {x.source for x in comparison.arms.values() if not x.program.feed.resident}:
        source.fingerprint  # noqa: B018 - checks them


def _costs(arm: Arm) -> tuple[float, float]:
    """Seconds until an arm's functions are compiled, and those of a run, its tests included."""
    program, config, seed = arm.program, arm.config, arm.config.seeds[0]
    if not program.feed.resident or jax.process_count() > 1:
        raise InputError(
            "steps cannot be timed when images are streamed or several processes train"
        )
    if jax.default_backend() == "cpu" and program.flops_per_step > _MOST_FLOPS:
        raise InputError(f"a step has {program.flops_per_step:.1e} FLOPs, too many for this CPU")
    states, keys = program.initial_state(seed), program.keys([seed])
    rate = np.array([(arm.peak, 1.0)], np.float32)
    session = program.feed.session(
        arm.on_device(), order_key(stream(seed, "data")), 0, program.steps
    )

    def run(count: int) -> Any:
        nonlocal states
        states, metrics = program.run_steps(states, arrays, keys, count, rate)
        return metrics

    def steps(count: int) -> float:
        return timed(lambda: run(count))[0]

    with contextlib.closing(session):
        arrays = next(session)
        compiled, single = steps(0), steps(1)
        count = max(1, min(int(_SECONDS / single), program.feed.max_dispatch, program.steps - 1))
        step = steps(count) / count

    evaluate = functools.partial(program.evaluate, states.variables, arm.on_device())
    first, test = (timed(evaluate)[0] for _ in range(2))  # the first one compiles
    every = evaluation_every(config.eval, program.feed.steps_per_epoch)
    tests = 2 + ((program.steps - 1) // every if every else 0)  # at the start and at the end
    return compiled + max(first - test, 0), program.steps * step + tests * test
