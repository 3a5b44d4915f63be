"""The states of runs that train at once: one run has its own, several are stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from optax import ApplyIfFiniteState

from mimetic_jax.data.feed.feed import Feed
from mimetic_jax.errors import InputError
from mimetic_jax.train.program import Program
from mimetic_jax.train.state import TrainState, stream
from mimetic_jax.train.step import Metrics
from mimetic_jax.train.tasks.task import Evaluation

Tested = tuple[Evaluation, Evaluation | None]
"""A test of a run's parameters, and of their average where there is one."""


def check(together: int, feed: Feed, data: str) -> None:
    """Check that so many runs can train at once.

    Args:
        together: number of runs.
        feed: of their program.
        data: its name.

    Raises:
        InputError: if the data is streamed, or several processes train as one.
    """
    if together == 1:
        return
    if not feed.resident:
        raise InputError(
            f"together {together} needs data that is held on the devices: {data} is streamed"
        )
    if jax.process_count() > 1:
        raise InputError(
            f"together {together} needs a single process, not {jax.process_count()}: leave it at 1"
        )


class Group(Protocol):
    """The states of runs that train at once, each in a slot of its own from first step to last."""

    def steps(self, arrays: Any, count: int, rate_scales: Sequence[float]) -> Metrics:
        """Take steps in one dispatch; the metrics are on their way.

        Args:
            arrays: of the feed's session.
            count: of steps.
            rate_scales: factor of the learning rate by slot.
        """

    def test(self) -> list[Tested]:
        """Test each run."""

    def state(self, slot: int) -> TrainState:
        """The state of one run, as it is when it trains alone."""

    def opt_state(self) -> Any:
        """Of all runs."""


class Alone:
    """A group of one."""

    def __init__(self, program: Program, data: Any, seed: int, state: TrainState) -> None:
        self._program, self._data, self._state = program, data, state
        self._keys = stream(seed, "data"), stream(seed, "dropout")

    def steps(self, arrays: Any, count: int, rate_scales: Sequence[float]) -> Metrics:
        self._state, history = self._program.run_steps(
            self._state, arrays, *self._keys, jnp.int32(count), jnp.float32(rate_scales[0])
        )
        return history

    def test(self) -> list[Tested]:
        state, test = self._state, self._program.test
        result = test(state.variables, self._data)
        return [(result, test(state.ema, self._data) if state.ema is not None else None)]

    def state(self, slot: int) -> TrainState:
        return self._state

    def opt_state(self) -> Any:
        return self._state.opt_state


class Several:
    """A group of several, stacked.

    A run that ended or diverged keeps its slot, in which the device goes on for nothing: with the
    same slots the others' results don't depend on it to the last bit, and nothing compiles again.
    """

    def __init__(
        self, program: Program, data: Any, seeds: Sequence[int], states: Sequence[TrainState]
    ) -> None:
        self._program, self._data = program, data
        self._states = program.stack(states)
        self._keys = [
            jnp.stack([stream(seed, name) for seed in seeds]) for name in ("data", "dropout")
        ]

    def steps(self, arrays: Any, count: int, rate_scales: Sequence[float]) -> Metrics:
        scales = jnp.asarray(rate_scales, jnp.float32)
        self._states, history = self._program.run_together(
            self._states, arrays, *self._keys, jnp.int32(count), scales
        )
        return history

    def test(self) -> list[Tested]:
        states, test = self._states, self._program.test_together
        results = test(states.variables, self._data)
        averaged: Sequence[Evaluation | None] = [None] * len(results)
        if states.ema is not None:
            averaged = test(states.ema, self._data)
        return list(zip(results, averaged, strict=True))

    def state(self, slot: int) -> TrainState:
        return self._program.member(self._states, jnp.int32(slot))

    def opt_state(self) -> Any:
        return self._states.opt_state


def by_slot(history: dict[str, np.ndarray], slot: int, count: int) -> dict[str, np.ndarray]:
    """The metrics of one run's steps, from those of a dispatch of its group."""
    return {name: np.atleast_2d(values)[slot, :count] for name, values in history.items()}


def skipped(opt_state: Any, slot: int) -> tuple[int, int]:
    """A run's steps without finite gradients, in a row and in all; none unless it may skip some."""
    if not isinstance(opt_state, ApplyIfFiniteState):
        return 0, 0
    in_a_row, in_all = opt_state.notfinite_count, opt_state.total_notfinite
    return int(np.atleast_1d(in_a_row)[slot]), int(np.atleast_1d(in_all)[slot])
