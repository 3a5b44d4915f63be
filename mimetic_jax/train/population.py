"""Populations: many small networks of one arm, trained at once, chunk after chunk."""

from __future__ import annotations

import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from mimetic_jax import paths
from mimetic_jax.train.cadence import eval_every, next_due
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.cluster.mesh import MEMBERS
from mimetic_jax.train.config import check_same, to_json
from mimetic_jax.train.program import Program
from mimetic_jax.train.progress import Progress, Say
from mimetic_jax.train.state import TrainState, stream
from mimetic_jax.train.workdir.checkpoint import Checkpoints, report_version
from mimetic_jax.train.workdir.lock import locked
from mimetic_jax.train.workdir.members import Chunk, MembersFolder
from mimetic_jax.train.workdir.origin import origin
from mimetic_jax.version import source_version

_SHARE, _SHARE_ON_CPU = 0.8, 0.5
"""Of the free memory, what a chunk may take."""
_MOST_ON_CPU = 64
"""There more members at once train no faster, see benchmarks/population.py."""
_FACTORIZATIONS = {"eigh", "svd", "qr", "householder_product", "cholesky", "schur", "eig"}


def train(
    folder: MembersFolder,
    config: ConfigDict,
    program: Program,
    data: Any,
    say: Say = print,
    fingerprint: str = "",
    *,
    progress: Progress | None = None,
    waiting: int = 0,
) -> None:
    """Train the members of an arm that aren't trained yet.

    Member i is the run of seed i: its initialization, order of examples, augmentation and dropout
    are those of that run. Every member trains on all devices' copies of the data; members never
    meet. What a chunk gives is written in one piece; inside a chunk, checkpoints are those of
    `config.checkpoint_every`. So a population that was killed and restarted becomes what an
    undisturbed one becomes, bit for bit, since the size of its chunks is kept.

    Args:
        folder: of the arm.
        config: of the arm, checked; `members` M and `chunk` C of it are read here.
        program: of the configuration, on a `population_mesh`.
        data: placed by the program's feed.
        say: prints a line of progress.
        fingerprint: of the data; members trained on other data, or of another configuration,
            aren't mixed with these.
        progress: shows the steps in between; plain lines unless given.
        waiting: steps of the members of other arms, which train after these.

    Raises:
        Preempted: if the process was asked to stop; what was trained is saved.
        InputError: if the folder is in use, can't be written, or holds other members' files.
    """
    progress = progress or Progress(say)
    with locked(folder.directory, say):
        record = to_json(config)
        if size := folder.chunk_size:
            folder.check_data(fingerprint)
            # Folders of earlier versions don't have it.
            check_same(f"{folder.directory}", folder.config or record, record)
            if config.chunk and size != min(config.chunk, config.members):
                say(f"trained {size} at a time, as those members that are trained")
        else:
            size = _chosen_size(config, program, data, say)
            folder.choose(size, fingerprint, record)
        while (first := folder.trained) < config.members:
            seeds = np.arange(first, min(first + size, config.members))
            label = f"{folder.directory.name} members {seeds[0]} to {seeds[-1]} of {config.members}"
            progress.prepare(label, (config.members - seeds[-1] - 1) * program.steps + waiting)
            try:
                _Chunk(folder, config, program, data, say, seeds, progress).train()
            finally:
                progress.end()


class _Chunk:
    """The training of one chunk."""

    def __init__(
        self,
        folder: MembersFolder,
        config: ConfigDict,
        program: Program,
        data: Any,
        say: Say,
        seeds: np.ndarray,
        progress: Progress,
    ) -> None:
        self.folder, self.config, self.program, self.data = folder, config, program, data
        self.progress = progress
        self.seeds, self.end, self.seconds = seeds, program.steps, 0.0
        label = f"members {seeds[0]} to {seeds[-1]} of {config.members}"
        self.say = lambda line: say(f"{label}: {line}")
        self.directory = folder.directory / f"training_{seeds[0]:08}-{seeds[-1]:08}"
        # The last member once more where the devices don't divide the chunk; it is left out later.
        self.lanes = np.append(seeds, [seeds[-1]] * (-len(seeds) % _devices(program)))
        self.eval_every = eval_every(config, program.feed.steps_per_epoch)
        self.steps: list[int] = []  # of the evaluations
        self.scores: dict[str, list[list[float]]] = {}  # name -> evaluation -> member

    def train(self) -> None:
        """Train the chunk, from its newest checkpoint if it has any, and write its file."""
        checkpoints = Checkpoints(self.directory / "checkpoints", 2, self.say)
        try:
            start = initial_members(self.program, self.config, self.lanes)
            initial = _by_path(start.params, len(self.seeds))
            state = self._continued(checkpoints, start) or start
            state = self._steps(state, checkpoints)
        finally:
            checkpoints.close()
        self._evaluate(state)
        self._report()
        curve = {
            name: (np.array(self.steps), np.array(values).T) for name, values in self.scores.items()
        }
        final = _by_path(state.params, len(self.seeds))
        self.folder.save(
            Chunk(self.seeds, curve, initial, final, self.count, self.seconds, origin())
        )
        shutil.rmtree(self.directory)

    def _continued(self, checkpoints: Checkpoints, start: TrainState) -> TrainState | None:
        """The newest whole checkpoint of this chunk."""
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), start
        )
        found = checkpoints.restore(shapes) if checkpoints.steps() else None
        if found is None:
            return None
        state, record = found
        report_version(record["code"], self.say)
        self.seconds, self.steps, self.scores = (
            record[name] for name in ("seconds", "steps", "scores")
        )
        checkpoints.set_aside(after=_step(state))
        checkpoints.reload()
        self.say(f"continues at step {_step(state)}")
        return state

    def _steps(self, state: TrainState, checkpoints: Checkpoints) -> TrainState:
        program, step = self.program, _step(state)
        keys = tuple(
            jax.device_put(_keys(self.lanes, name), program.by_member)
            for name in ("data", "dropout")
        )
        ones = jax.device_put(np.ones(len(self.lanes), np.float32), program.by_member)
        arrays = _arrays(program, self.data)
        self.progress.now("compiling")
        dispatch = program.together(len(self.lanes), arrays)
        cadences = (self.eval_every, self.config.checkpoint_every, self.config.log_every)
        self.progress.begin(step * len(self.seeds), self.end * len(self.seeds))
        while step < self.end:
            count = min(next_due(step, self.end, cadences) - step, program.feed.max_dispatch)
            began = time.perf_counter()
            state, history = dispatch(state, arrays, *keys, jnp.int32(count), ones)
            losses = np.asarray(history["loss"])[: len(self.seeds), :count]
            self.seconds += time.perf_counter() - began
            step += count
            self._show(step, losses)
            if step < self.end and self.eval_every and step % self.eval_every == 0:
                self._evaluate(state)
            stopping = step < self.end and preemption.should_stop()
            due = self.config.checkpoint_every and step % self.config.checkpoint_every == 0
            if stopping or (due and step < self.end):
                self._save(state, checkpoints)
            if stopping:
                checkpoints.wait()
                raise preemption.Preempted(f"stopped at step {step}, which is saved")
        return state

    def _save(self, state: TrainState, checkpoints: Checkpoints) -> None:
        record = {
            "code": source_version(),
            "seconds": self.seconds,
            "steps": self.steps,
            "scores": self.scores,
        }
        checkpoints.save(state, record, step=_step(state))

    def _evaluate(self, state: TrainState) -> None:
        self.steps.append(_step(state))
        tested = self.program.test_together(state.variables, self.data)[: len(self.seeds)]
        self.count = tested[0].count
        for name in tested[0].values:
            values = [evaluation.values[name] for evaluation in tested]
            self.scores.setdefault(name, []).append(values)

    def _show(self, step: int, losses: np.ndarray) -> None:
        log_due = step % self.config.log_every == 0 or step == self.end
        if not (self.progress.live or log_due):
            return
        finite = losses[np.isfinite(losses)]
        rate = len(self.seeds) * step * self.program.task.per_step / self.seconds
        left = (self.end - step) * self.seconds / step
        shown = f"mean loss {finite.mean():.4f}" if finite.size else "no finite loss"
        speed = f"{rate:,.0f} {self.program.task.unit}/s of all members"
        if self.progress.live:
            self.progress.at(step * len(self.seeds), f"step {step}/{self.end}  {shown}", speed)
        else:
            self.say(f"step {step:>5}/{self.end}  {shown}  {speed}  ETA {left:.0f} s")

    def _report(self) -> None:
        last = {name: np.array(values[-1]) for name, values in self.scores.items()}
        lost = np.flatnonzero(~np.isfinite(last["loss"]))
        if lost.size:
            which = ", ".join(str(self.seeds[i]) for i in lost[:8])
            self.say(f"the loss of {lost.size} members is no longer finite: {which}")
        score = self.program.task.score
        values = score.scale * last[score.name]
        self.say(f"{score.label} {np.nanmean(values):.2f} ± {np.nanstd(values, ddof=0):.2f}")


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
    variables = program.init_together(_keys(seeds, "init"))
    params = variables["params"]
    if config.scheme:
        params = _rewritten(program, config.scheme)(_keys(seeds, "scheme"), params)
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


def _chosen_size(config: ConfigDict, program: Program, data: Any, say: Say) -> int:
    """Members at once: as asked for, if they fit the memory; else what fits."""
    devices = _devices(program)
    asked = wanted(config)
    on_cpu = jax.default_backend() == "cpu"
    if not config.chunk and on_cpu:
        asked = min(asked, _MOST_ON_CPU * devices)
    size = rounded(asked, devices)
    free = _free() * devices
    allowed = (_SHARE_ON_CPU if on_cpu else _SHARE) * free
    while (takes := _bytes(program, data, size)) > allowed and size > devices:
        size = rounded(min(size - 1, int(size * allowed / takes)), devices)
    if size < rounded(asked, devices):
        say(
            f"{size} members at a time instead of {asked}: they take {takes / 2**30:,.2f} GiB, "
            f"and {free / 2**30:,.2f} GiB are free"
        )
    return size


def wanted(config: ConfigDict) -> int:
    """Members at once that a configuration asks for, whatever the memory."""
    return min(config.chunk or config.members, config.members)


def rounded(size: int, devices: int) -> int:
    """Down to a number that the devices divide, but one each at least."""
    return max(size - size % devices, devices)


def _bytes(program: Program, data: Any, members: int) -> int:
    """Memory of a dispatch of so many members beside the data."""
    memory = program.together(members, _arrays(program, data)).memory_analysis()
    return memory.temp_size_in_bytes + memory.output_size_in_bytes if memory else 0


def _arrays(program: Program, data: Any) -> Any:
    """What dispatches are called with; the same for all members, since their data is resident."""
    return program.feed.session(data, stream(0, "data"), 0, program.steps).arrays()


def _free() -> int:
    """Free bytes of one device."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _devices(program: Program) -> int:
    return program.mesh.shape.get(MEMBERS, 1)


def _keys(seeds: np.ndarray, name: str) -> jax.Array:
    return jax.vmap(lambda seed: stream(seed, name))(jnp.asarray(seeds, jnp.uint32))


def _step(state: TrainState) -> int:
    return int(np.asarray(state.step)[0])


def _by_path(params: Any, members: int) -> dict[str, np.ndarray]:
    return {path: np.asarray(leaf)[:members] for path, leaf in paths.flatten(params)[0]}
