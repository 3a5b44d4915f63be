"""Checkpoints: written in the background, each whole or not there, as Orbax commits them.

The only module that imports Orbax.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from mimetic_jax.base.errors import InputError, error_text
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import AnyPath, path_of


class Checkpoints:
    """The checkpoints of a group.

    Every checkpoint holds the state and a small record: what the host must remember, such as the
    seconds trained.

    Args:
        folder: that holds them; made if missing.
        keep: number of the newest to keep.
    """

    def __init__(self, folder: AnyPath | str, keep: int = 2) -> None:
        self.folder = folder = path_of(folder)
        self._path = epath.Path(folder if files.in_bucket(folder) else folder.absolute())
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True)
        self._manager = ocp.CheckpointManager(self._path, options=options)

    def save(self, state: TrainState, record: dict[str, Any], step: int) -> None:
        """Start writing the state; returns once the arrays are copied.

        Args:
            state: of a run, or of a group.
            record: what the host must remember.
            step: that the state has taken.

        Raises:
            InputError: if this or, here or in `wait` and `close`, the write before failed.
        """
        with self._reporting():
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state),
                    record=ocp.args.JsonSave(record),
                ),
            )

    def restore(self, shapes: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """The newest checkpoint and its record; None without any checkpoint.

        Args:
            shapes: the state's shapes, dtypes and shardings.

        Raises:
            InputError: it can't be restored. A run never goes back or starts over by itself.
        """
        steps = self.steps()
        return self._restored(steps[-1], lambda step: shapes) if steps else None

    def read(self, step: int) -> TrainState:
        """The state of a checkpoint, on one device.

        Raises:
            InputError: it can't be restored.
        """
        return self._restored(step, self.saved_shapes)[0]

    def _restored(
        self, step: int, shapes: Callable[[int], TrainState]
    ) -> tuple[TrainState, dict[str, Any]]:
        try:
            restored = self._manager.restore(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardRestore(shapes(step)), record=ocp.args.JsonRestore()
                ),
            )
        except Exception as error:  # each store has its own
            before = [other for other in self.steps() if other < step]
            then = f"continues from checkpoint {before[-1]}" if before else "starts the run over"
            raise InputError(
                f"checkpoint {step} in {self.folder} can't be restored ({error_text(error)}): try "
                f"again if the storage had a fault, or move {self.folder / str(step)} away, and "
                f"the same command {then}"
            ) from error
        return restored.state, restored.record

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
            reason = system[1].strip() if system else error_text(error)
            raise InputError(
                f"a checkpoint couldn't be written into {self.folder} ({reason}); those before "
                "it are kept, and the same command continues from the newest"
            ) from error


def saved_record(folder: AnyPath, step: int | None = None) -> dict[str, Any] | None:
    """The record of a checkpoint, whose state isn't read; None if there is no such checkpoint.

    Args:
        folder: of a run's checkpoints; it may be missing.
        step: of the checkpoint; the newest unless given.

    Raises:
        InputError: it can't be read.
    """
    steps = ocp.utils.checkpoint_steps(folder) if folder.exists() else []
    if step not in steps and (step is not None or not steps):
        return None
    place = folder / str(max(steps) if step is None else step) / "record"
    try:
        return ocp.JsonCheckpointHandler().restore(epath.Path(place))
    except Exception as error:  # each store has its own
        raise InputError(
            f"{place} can't be read ({error_text(error)}): try again if the storage had a fault, "
            f"or move {place.parent} away"
        ) from error


def read_variables(folder: AnyPath, step: int | None = None) -> dict[str, Any]:
    """The model's variables of a checkpoint, on one device.

    Args:
        folder: of the run's checkpoints.
        step: of the checkpoint; the newest unless given.

    Raises:
        InputError: there is none, or it can't be restored.
    """
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        if not (steps := checkpoints.steps()):
            raise InputError(f"{folder} has no checkpoint")
        return checkpoints.read(steps[-1] if step is None else step).variables
