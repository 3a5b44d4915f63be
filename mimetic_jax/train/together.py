"""Several runs of a program at once: its functions with an axis of runs in front."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from mimetic_jax.data.feed.feed import Examples, Sums, place
from mimetic_jax.train.program import Program
from mimetic_jax.train.state import TrainState, stream
from mimetic_jax.train.step import Metrics
from mimetic_jax.train.tasks.task import Evaluation


def together(program: Program, runs: int) -> Program | Together:
    """Return the program of so many runs at once; of one run, itself."""
    if runs > 1 and runs not in program.by_runs:
        program.by_runs[runs] = Together(program, runs)
    return program.by_runs.get(runs, program)


class Together:
    """K runs of a program with the interface of one: states, keys and metrics have an axis [K]."""

    def __init__(self, program: Program, runs: int) -> None:
        self._program, self._count = program, runs
        self._by_run = NamedSharding(program.mesh, P())
        self.shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                (runs, *leaf.shape),
                leaf.dtype,
                sharding=NamedSharding(program.mesh, P(None, *leaf.sharding.spec)),
            ),
            program.shapes,
        )
        placed = jax.tree.map(lambda leaf: leaf.sharding, self.shapes)
        self.compiled_dispatch = jax.jit(
            jax.vmap(program.dispatch, in_axes=(0, None, 0, 0, None, 0)),
            donate_argnums=0,
            out_shardings=(placed, self._by_run),
        )

    def keys(self, seeds: Sequence[int]) -> tuple[jax.Array, jax.Array]:
        """As `Program.keys`, of K seeds."""
        numbers = jnp.asarray(seeds, jnp.uint32)
        data, dropout = (
            jax.device_put(jax.vmap(functools.partial(stream, name=name))(numbers), self._by_run)
            for name in ("data", "dropout")
        )
        return data, dropout

    def stack(self, states: Iterable[TrainState]) -> TrainState:
        """Return the states of the runs, as one."""
        every = [jax.device_get(state) for state in states]
        return jax.tree.map(
            lambda leaf, *leaves: place(np.stack(leaves), leaf.sharding), self.shapes, *every
        )

    def unstack(self, states: TrainState) -> list[TrainState]:
        """Return the state of each run."""
        return [
            jax.tree.map(
                lambda leaf, shape, run=run: jax.device_put(leaf[run], shape.sharding),
                states,
                self._program.shapes,
            )
            for run in range(self._count)
        ]

    def run_steps(
        self,
        states: TrainState,
        arrays: Any,
        keys: tuple[jax.Array, jax.Array],
        count: int,
        rates: np.ndarray,
    ) -> tuple[TrainState, Metrics]:
        """As `Program.run_steps`, at rates [K, 2]; metrics [K, max_dispatch]."""
        by_run = jax.device_put(rates, self._by_run)
        return self.compiled_dispatch(states, arrays, *keys, jnp.int32(count), by_run)

    def evaluate(self, variables: Any, data: Any) -> list[Evaluation]:
        """As `Program.evaluate`, of each run."""
        sums = self._program.feed.test(self._sums_by_run, variables, data)
        return [
            self._program.task.evaluation({name: values[run] for name, values in sums.items()})
            for run in range(self._count)
        ]

    def _sums_by_run(self, variables: Any, examples: Examples, weights: jax.Array) -> Sums:
        return jax.vmap(self._program.task.sums, in_axes=(0, None, None))(
            variables, examples, weights
        )
