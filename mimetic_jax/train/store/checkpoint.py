"""Checkpoints: asynchronous, verified, falling back to the one before when damaged.

The only module that imports Orbax.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from mimetic_jax.errors import InputError, said_by
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store.places import Place


class Checkpoints:
    """The checkpoints of one run.

    Every checkpoint holds the state, a small record (what the host must remember, such as the
    seconds trained), a checksum of each array computed on the device before it was written, and
    one of the record.

    Args:
        folder: that holds them; made if missing.
        keep: number of the newest to keep, ≥ 2, since one may turn out damaged.
        say: prints a line when a checkpoint is skipped.
        also: given the steps of all checkpoints, which to keep besides the newest.

    Raises:
        InputError: the folder has links, pipes or devices, which its readers would follow.
    """

    def __init__(
        self,
        folder: Place | str,
        keep: int = 2,
        say: Callable[[str], None] = print,
        also: Callable[[Sequence[int]], Collection[int]] = lambda steps: (),
    ) -> None:
        self.folder = folder = Place.of(folder)
        self._say = say
        if folder.exists():
            folder.check_inside()
        path = folder.path if folder.in_bucket else folder.path.absolute()
        self._path = epath.Path(path)
        options = ocp.CheckpointManagerOptions(preservation_policy=_Keep(keep, also), create=True)
        self._manager = ocp.CheckpointManager(self._path, options=options)

    def save(self, state: TrainState, record: dict[str, Any], step: int | None = None) -> None:
        """Start writing the state; returns once the arrays are copied.

        Args:
            state: of a run, or of members that are all at the same step.
            record: what the host must remember.
            step: of the members; a run's is in its state.

        Raises:
            InputError: if this or, here or in `wait` and `close`, the write before failed.
        """
        checksums = [int(checksum) for checksum in np.asarray(_checksums(state))]
        record = {**record, "checksums": checksums}
        with self._reporting():
            self._manager.save(
                int(state.step) if step is None else step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state),
                    record=ocp.args.JsonSave({**record, "sha256": _sha256(record)}),
                ),
            )

    def restore(self, shapes: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """The newest undamaged checkpoint and its record; None without any checkpoint.

        A damaged one is reported, and the one before it tried. Nothing is deleted: see `set_aside`.

        Args:
            shapes: the state's shapes, dtypes and shardings.

        Raises:
            InputError: all checkpoints are damaged: a run never starts over by itself.
        """
        return self._first_whole(self.steps()[::-1], lambda step: shapes)

    def read(self, steps: Sequence[int]) -> TrainState | None:
        """The state of the first undamaged checkpoint of `steps`, on one device.

        Raises:
            InputError: as `restore`.
        """
        found = self._first_whole(steps, self.saved_shapes)
        return found[0] if found else None

    def _first_whole(
        self, steps: Sequence[int], shapes: Callable[[int], TrainState]
    ) -> tuple[TrainState, dict[str, Any]] | None:
        for step in steps:
            try:
                return self._read(step, shapes(step))
            except Exception as error:  # whatever a damaged file makes the readers raise
                self._say(f"checkpoint {step} is damaged, trying the one before ({said_by(error)})")
        if steps:
            raise InputError(
                f"none of the checkpoints {list(steps)} in {self.folder} can be read: delete that "
                "folder to start the run over"
            )
        return None

    def steps(self) -> list[int]:
        """The steps of complete checkpoints, oldest first."""
        return sorted(self._manager.all_steps())

    def saved_shapes(self, step: int) -> TrainState:
        """Shapes and dtypes of a checkpoint's state, on one device."""
        where = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        with ocp.StandardCheckpointer() as reader:
            saved = reader.metadata(self._path / str(step) / "state").item_metadata.tree
        return TrainState(
            **jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), saved
            )
        )

    def set_aside(self, after: int) -> None:
        """Move checkpoints later than a step to `damaged/`: their steps will be written again."""
        for step in self.steps():
            if step > after:
                target = self.folder.parent / "damaged" / str(step)
                while target.exists():
                    target = target.parent / f"{target.name}+"
                target.parent.make()
                (self.folder / str(step)).path.rename(target.path)
                self._say(f"checkpoint {step} moved to {target}")

    def reload(self) -> None:
        """List the checkpoints in the directory again."""
        self._manager.reload()

    def wait(self) -> None:
        """Return once every write is complete."""
        with self._reporting():
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Wait, and release the directory."""
        with self._reporting():
            self._manager.close()

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report a failed write, which Orbax raises from whatever call comes next."""
        try:
            yield
        except Exception as error:  # each store has its own
            system = re.search(r"([^:\[]+) \[os_error_code", str(error))
            reason = system[1].strip() if system else said_by(error)
            raise InputError(
                f"a checkpoint couldn't be written into {self.folder} ({reason}); those before "
                "it are kept, and the same command continues from the newest"
            ) from error

    def _read(self, step: int, shapes: TrainState) -> tuple[TrainState, dict[str, Any]]:
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(shapes), record=ocp.args.JsonRestore()
            ),
        )
        record = _whole(restored.record)
        expected = record["checksums"]
        found = [int(checksum) for checksum in np.asarray(_checksums(restored.state))]
        if found != expected:
            wrong = sum(a != b for a, b in zip(found, expected, strict=False))
            raise ValueError(f"checksums of {wrong} of {len(expected)} arrays differ")
        return restored.state, record


def newest_record(folder: Place, step: int | None = None) -> dict[str, Any] | None:
    """The newest undamaged record of a checkpoint; its state isn't read.

    Args:
        folder: of a run's checkpoints; it may be missing.
        step: of this checkpoint alone, if given.
    """
    steps = sorted((int(name) for name in folder.names() if _is_step(name)), reverse=True)
    for found in steps if step is None else {step} & set(steps):
        place = folder / str(found) / "record"
        try:
            place.check_inside()
            return _whole(ocp.JsonCheckpointHandler().restore(epath.Path(place.path)))
        except Exception:  # whatever a damaged file makes the reader raise, as in `restore`
            continue
    return None


def content_digest(record: dict[str, Any]) -> str:
    """12 hexadecimal digits that differ where the arrays of two checkpoints do.

    Args:
        record: of the checkpoint, as `newest_record` returns it.
    """
    return _sha256({"checksums": record["checksums"]})[:12]


def read_variables(
    folder: Place, say: Callable[[str], None], step: int | None = None
) -> dict[str, Any]:
    """The model's variables of a checkpoint, on one device.

    Args:
        folder: of the run's checkpoints.
        say: prints a line when a checkpoint is passed over.
        step: of the checkpoint; the newest undamaged one unless given.

    Raises:
        InputError: if none can be read.
    """
    checkpoints = Checkpoints(folder, say=say)
    try:
        steps = checkpoints.steps()
        if step is not None and step not in steps:
            raise InputError(f"{folder} has no checkpoint {step}, only {steps}")
        state = checkpoints.read(steps[::-1] if step is None else [step])
    finally:
        checkpoints.close()
    if state is None:
        raise InputError(f"{folder} has no checkpoint")
    return state.variables


def _is_step(name: str) -> bool:
    return name.isascii() and name.isdecimal()


@dataclasses.dataclass(frozen=True)
class _Keep:
    """Orbax's preservation policy: keep the newest checkpoints, and what `also` names."""

    newest: int
    also: Callable[[Sequence[int]], Collection[int]]

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        steps = sorted(info.step for info in checkpoints)
        kept = {*steps[-self.newest :], *self.also(steps)}
        return [info.step in kept for info in checkpoints]


def _whole(saved: dict[str, Any]) -> dict[str, Any]:
    """A record as it was saved, without its checksum."""
    record = dict(saved)
    if record.pop("sha256") != _sha256(record):
        raise ValueError("its record is not what was written")
    return record


def _sha256(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _checksums(tree: Any) -> jax.Array:
    """One number per leaf that any flipped bit changes, the same on every mesh: [leaves]."""
    leaves = jax.tree.leaves(tree)
    where = leaves[0].sharding
    # Every process must be able to read them.
    everywhere = NamedSharding(where.mesh, P()) if isinstance(where, NamedSharding) else None
    return _summed(leaves, everywhere)


@functools.partial(jax.jit, static_argnums=1)
def _summed(leaves: list[jax.Array], everywhere: NamedSharding | None) -> jax.Array:
    sums = jnp.stack([_checksum(leaf) for leaf in leaves])
    return sums if everywhere is None else jax.lax.with_sharding_constraint(sums, everywhere)


def _checksum(leaf: jax.Array) -> jax.Array:
    if leaf.dtype != jnp.bool_:
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{8 * leaf.dtype.itemsize}"))
    bits = leaf.astype(jnp.uint32).ravel()
    # Odd weights are invertible modulo 2^32, so one changed word always changes the sum.
    weights = 2 * jax.lax.iota(jnp.uint32, bits.size) + 1
    return jnp.sum(bits * weights, dtype=jnp.uint32)
