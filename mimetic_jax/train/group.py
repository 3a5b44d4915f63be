"""Groups: runs that train at once, because they share a program and a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.data.feed.feed import Session
from mimetic_jax.train.journal import History, Journal, Tested
from mimetic_jax.train.program import Program
from mimetic_jax.train.state import TrainState, order_key, stream, streams
from mimetic_jax.train.step import Metrics
from mimetic_jax.train.tasks.task import Evaluation


class Group:
    """The states of K ≥ 1 runs on the devices, each in a slot of its own from first step to last.

    One run alone has its own program. Several are stacked: a run that ended or diverged keeps its
    slot, in which the device goes on for nothing, since with the same slots the others' results
    don't depend on it to the last bit, and nothing compiles again.

    Attributes:
        program: of all runs.
        journals: of the runs; several of one run each, or one of all members of a chunk.
        size: number of slots.

    Args:
        program, journals: see above.
        data: placed by the program's feed.
        lanes: seeds by slot; those of the journals unless given.
    """

    def __init__(
        self,
        program: Program,
        data: Any,
        journals: Sequence[Journal],
        lanes: Sequence[int] | None = None,
    ) -> None:
        self.program, self.journals, self._data = program, journals, data
        self._alone = len(journals) == 1 and lanes is None
        seeds = lanes or [seed for journal in journals for seed in journal.seeds]
        states = [journal.start() for journal in journals]
        self._stacked = lanes is None and not self._alone  # by us, run by run
        self._states = program.stack(states) if self._stacked else states[0]
        if self._alone:
            self._keys = tuple(stream(seeds[0], name) for name in ("data", "dropout"))
        else:
            self._keys = tuple(
                jax.device_put(streams(seeds, name), program.by_member)
                for name in ("data", "dropout")
            )
        self.size = len(seeds)

    def session(self) -> Session:
        """The data of the steps that are left."""
        first, feed = self.journals[0], self.program.feed
        key = order_key(stream(first.seeds[0], "data"))
        return feed.session(self._data, key, first.step, self.program.steps)

    def steps(self, arrays: Any, count: int, rate_scales: Sequence[float]) -> Metrics:
        """Take steps in one dispatch; the metrics are on their way.

        Args:
            arrays: of the feed's session.
            count: of steps; 0 compiles.
            rate_scales: factor of the learning rate by journal.
        """
        program = self.program
        if self._alone:
            run, scales = program.run_steps, jnp.float32(rate_scales[0])
        else:
            run = program.together(self.size, arrays)
            scales = np.resize(np.asarray(rate_scales, np.float32), self.size)
            scales = jax.device_put(scales, program.by_member)
        self._states, history = run(self._states, arrays, *self._keys, jnp.int32(count), scales)
        return history

    def history(self, metrics: Metrics, count: int) -> History:
        """Metrics of a dispatch of so many steps on the host, [K, steps]."""
        host = jax.device_get(metrics)
        return {name: np.atleast_2d(values)[:, :count] for name, values in host.items()}

    def test(self) -> list[Tested]:
        """A test of each run."""
        variables, averages = self._states.variables, self._states.ema
        results = self._tested(variables)
        averaged: Sequence[Evaluation | None]
        averaged = self._tested(averages) if averages is not None else [None] * len(results)
        return list(zip(results, averaged, strict=True))

    def _tested(self, variables: Any) -> Sequence[Evaluation]:
        if self._alone:
            return [self.program.test(variables, self._data)]
        return self.program.test_together(variables, self._data)

    def state(self, journal: int) -> TrainState:
        """The state of a journal's runs: of a run as it is when it trains alone."""
        if self._stacked:
            return self.program.member(self._states, jnp.int32(journal))
        return self._states
