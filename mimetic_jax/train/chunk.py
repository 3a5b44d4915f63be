"""Chunks of a population: members of an arm that are trained in one program, by memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from mimetic_jax.host.memory import available_bytes
from mimetic_jax.train.cluster.mesh import MEMBERS
from mimetic_jax.train.journal import History, Journal, Tested
from mimetic_jax.train.program import Program
from mimetic_jax.train.progress import Say
from mimetic_jax.train.record import Origin
from mimetic_jax.train.state import TrainState, stream, streams
from mimetic_jax.train.store.chunks import About, Chunk, Members
from mimetic_jax.train.store.claim import Made
from mimetic_jax.tree import paths

_SHARE, _SHARE_ON_CPU = 0.8, 0.5
"""Share of the free memory that a chunk may take."""
_MOST_ON_CPU = 64
"""On a CPU, more members at once don't train faster."""
_FACTORIZATIONS = {"eigh", "svd", "qr", "householder_product", "cholesky", "schur", "eig"}


class ChunkJournal(Journal):
    """The journal of a chunk: members share a checkpoint and, in the end, a file.

    Member i is the run of seed i: its initialization, order of examples, augmentation and dropout
    are those of that run.

    Args:
        members: of the arm.
        seeds: of the chunk.
        lanes: the same, repeated at the end until the devices divide them.
    """

    def __init__(
        self,
        members: Members,
        seeds: Sequence[int],
        lanes: Sequence[int],
        made: Made,
        config: ConfigDict,
        program: Program,
        say: Say,
    ) -> None:
        self._members, self._lanes = members, np.array(lanes)
        self._loss, self._written = np.nan, False
        folder = members.folder / f"training_{seeds[0]:08}-{seeds[-1]:08}"
        label = f"{members.arm} members {seeds[0]} to {seeds[-1]} of {config.members}"
        super().__init__(label, seeds, folder, made, config, program, say)

    def start(self) -> TrainState:
        # The weights before the first step are part of what a chunk leaves.
        self._first = initial_members(self._program, self._config, self._lanes)
        self._weights = _by_path(self._first.params, len(self.seeds))
        state = super().start()
        del self._first
        return state

    def count(self, history: History, seconds: float) -> None:
        losses = history["loss"][: len(self.seeds)]
        self.step += losses.shape[1]
        self.seconds += seconds
        finite = losses[np.isfinite(losses)]
        self._loss = float(finite.mean()) if finite.size else np.nan

    def log(self) -> str:
        return f"{self._at()}  mean loss {self._loss:.4f}"

    def evaluated(self, tested: Sequence[Tested]) -> None:
        results = [result for result, _ in tested[: len(self.seeds)]]
        names = results[0].values
        values = {name: [result.values[name] for result in results] for name in names}
        self.evaluations.append((self.step, values))
        score = self._program.task.score
        shown = score.scale * np.array(values[score.name])
        self.say(f"{self._at()}  {score.label} {np.nanmean(shown):.2f} ± {np.nanstd(shown):.2f}")

    def finish(self, tested: Sequence[Tested], state: Callable[[], TrainState]) -> None:
        """Record the last test, and write the chunk's file, which replaces its checkpoints."""
        self.evaluated(tested)
        lost = np.flatnonzero(~np.isfinite(self.evaluations[-1][1]["loss"]))
        if lost.size:
            which = ", ".join(str(self.seeds[i]) for i in lost[:8])
            self.say(f"the loss of {lost.size} members is no longer finite: {which}")
        steps = np.array([step for step, _ in self.evaluations])
        curve = {
            name: (steps, np.array([values[name] for _, values in self.evaluations]).T)
            for name in self.evaluations[-1][1]
        }
        count = tested[0][0].count
        self._members.save(
            Chunk(
                np.array(self.seeds),
                curve,
                self._weights,
                _by_path(state().params, len(self.seeds)),
                About(
                    count,
                    self.seconds,
                    Origin.here(),
                    self._made.data,
                    self._program.task.score.name,
                ),
            )
        )
        self._written = True

    def close(self) -> None:
        super().close()
        if self._written:
            self.folder.remove()

    @property
    def checkpoint_due(self) -> bool:
        return not self.ended and super().checkpoint_due

    def _shapes(self) -> TrainState:
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), self._first
        )

    def _initial(self) -> TrainState:
        return self._first

    def _best(self, steps: Sequence[int]) -> list[int]:
        return []  # members have different best steps


def initial_members(program: Program, config: ConfigDict, seeds: np.ndarray) -> TrainState:
    """The states of members before the first step, stacked: those of the runs of these seeds.

    All at once where the scheme is arithmetic alone. A scheme that factorizes is applied to one
    member after the other on the host, as single runs have it: compiled factorizations choose other
    signs of the singular vectors, and so other weights with the same products.

    Args:
        program: of the configuration.
        config: of the arm; its scheme is applied.
        seeds: of the members, [C].
    """
    variables = program.init_together(streams(seeds, "init"))
    params = variables["params"]
    if config.scheme:
        params = _rewritten(program, config.scheme)(streams(seeds, "scheme"), params)
    state = program.states_of({**variables, "params": params})
    return jax.device_put(state, program.by_member)


@functools.lru_cache(maxsize=4)  # all chunks of an arm share what is compiled
def _rewritten(program: Program, scheme: Any) -> Callable[[jax.Array, Any], Any]:
    """A function of keys [C] and the members' parameters."""
    member = functools.partial(program.rewritten, scheme=scheme)
    key = jax.eval_shape(lambda: jax.random.key(0))
    if not _factorizes(jax.make_jaxpr(member)(key, program.shapes.params).jaxpr):
        return jax.jit(lambda keys, params: jax.lax.map(lambda one: member(*one), (keys, params)))

    def one_by_one(keys: jax.Array, params: Any) -> Any:
        written = [
            member(keys[i], jax.tree.map(lambda x, i=i: x[i], params)) for i in range(len(keys))
        ]
        return jax.tree.map(lambda *leaves: np.stack([*map(np.asarray, leaves)]), *written)

    return one_by_one


def _factorizes(jaxpr: Any) -> bool:
    """Whether a program calls LAPACK, itself or in what it calls."""
    return any(
        equation.primitive.name in _FACTORIZATIONS or any(map(_factorizes, _within(equation)))
        for equation in jaxpr.eqns
    )


def _within(equation: Any) -> Iterator[Any]:
    for value in equation.params.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield inner


def chosen_size(config: ConfigDict, program: Program, data: Any, say: Say) -> int:
    """Members at once: as asked for, if they fit the memory; else what fits."""
    devices = _devices(program)
    asked = wanted(config)
    on_cpu = jax.default_backend() == "cpu"
    if not config.chunk and on_cpu:
        asked = min(asked, _MOST_ON_CPU * devices)
    size = rounded(asked, devices)
    free = _free()
    allowed = (_SHARE_ON_CPU if on_cpu else _SHARE) * free
    while (takes := _bytes(program, data, size)) > allowed and size > devices:
        size = rounded(min(size - 1, int(size * allowed / takes)), devices)
    if size < rounded(asked, devices):
        say(
            f"{size} members at a time instead of {asked}: they take {takes / 2**30:,.2f} GiB of "
            f"each device, of which {free / 2**30:,.2f} GiB are free"
        )
    return size


def wanted(config: ConfigDict) -> int:
    """Members at once that a configuration asks for, whatever the memory."""
    return min(config.chunk or config.members, config.members)


def rounded(size: int, devices: int) -> int:
    """Down to a number that the devices divide, but one each at least."""
    return max(size - size % devices, devices)


def lanes_of(seeds: Sequence[int], program: Program) -> list[int]:
    """Seeds as the devices take them: the last one again until they divide the number."""
    return [*seeds, *[seeds[-1]] * (-len(seeds) % _devices(program))]


def _bytes(program: Program, data: Any, members: int) -> int:
    """Memory of one device for a dispatch of so many members, without the data."""
    # The arrays are the same for all members, since their data is resident.
    arrays = program.feed.session(data, stream(0, "data"), 0, program.steps).arrays()
    memory = program.together(members, arrays).memory_analysis()
    return memory.temp_size_in_bytes + memory.output_size_in_bytes if memory else 0


def _free() -> int:
    """Free bytes of one device; those of a CPU share the host's."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    return available_bytes() // jax.local_device_count()


def _devices(program: Program) -> int:
    return program.mesh.shape.get(MEMBERS, 1)


def _by_path(params: Any, members: int) -> dict[str, np.ndarray]:
    return {path: np.asarray(leaf)[:members] for path, leaf in paths.flatten(params)[0]}
