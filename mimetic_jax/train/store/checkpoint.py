"""Checkpoints: written in the background, each whole or not there, as Orbax commits them.

The only module that imports Orbax.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from mimetic_jax.base.errors import InputError, error_text
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import AnyPath, path_of


class Checkpoints:
    """The newest checkpoints of a group, each with the state and a small record: what the host must
    remember, such as the seconds trained."""

    def __init__(self, folder: AnyPath | str, keep: int = 2) -> None:
        self.folder = folder = path_of(folder)
        self._path = epath.Path(folder if files.in_bucket(folder) else folder.absolute())
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True)
        self._manager = ocp.CheckpointManager(self._path, options=options)

    def save(self, state: TrainState, record: dict[str, Any], step: int) -> None:
        """Start writing the state; returns once the arrays are copied. A failure of the write is
        raised here, by `wait`, by `close`, or by the next call."""
        with self._reporting():
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state),
                    record=ocp.args.JsonSave(record),
                ),
            )

    def restore(self, shapes: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """Return the newest checkpoint and its record; None without any checkpoint.

        One that can't be restored is an error: a run never goes back or starts over by itself.
        """
        if not (steps := self.steps()):
            return None
        with self._restoring(steps[-1]):
            items = {"state": ocp.args.StandardRestore(shapes), "record": ocp.args.JsonRestore()}
            restored = self._manager.restore(steps[-1], args=ocp.args.Composite(**items))
            return restored.state, restored.record

    def variables(self, step: int) -> dict[str, Any]:
        """Return the model's variables of a checkpoint, on one device."""
        where = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        with self._restoring(step), ocp.StandardCheckpointer() as reader:
            folder = self._path / str(step) / "state"
            saved = TrainState(**reader.metadata(folder).item_metadata.tree)
            shapes = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), saved
            )
            state: TrainState = reader.restore(folder, shapes)
            return state.variables

    def record(self, step: int) -> dict[str, Any]:
        """Return the record of a checkpoint, whose state isn't read."""
        with self._restoring(step):
            items = ocp.args.Composite(record=ocp.args.JsonRestore())
            record: dict[str, Any] = self._manager.restore(step, args=items).record
            return record

    def steps(self) -> list[int]:
        """Return the steps of complete checkpoints, oldest first."""
        return sorted(self._manager.all_steps())

    def wait(self) -> None:
        """Return once every write is complete."""
        with self._reporting():
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Wait, and release the directory."""
        with self._reporting():
            self._manager.close()

    @contextlib.contextmanager
    def _restoring(self, step: int) -> Iterator[None]:
        """Report a checkpoint that can't be restored, and what happens once it is moved away."""
        try:
            yield
        except Exception as error:  # each store has its own
            before = [other for other in self.steps() if other < step]
            then = f"continues from checkpoint {before[-1]}" if before else "starts over"
            raise InputError(
                f"checkpoint {step} in {self.folder} can't be restored ({error_text(error)}): try "
                f"again if the storage had a fault, or move {self.folder / str(step)} away, and "
                f"training {then}"
            ) from error

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report a failed write, which Orbax raises from whatever call comes next."""
        try:
            yield
        except Exception as error:  # each store has its own
            system = re.search(r"([^:\[]+) \[os_error_code", str(error))
            reason = system[1].strip() if system else error_text(error)
            raise InputError(
                f"a checkpoint couldn't be written into {self.folder} ({reason}); those before "
                "it are kept, and the same command continues from the newest"
            ) from error
