"""TensorBoard's files of a training's metrics, which wandb and others read too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mimetic_jax.base.extras import need

if TYPE_CHECKING:
    from mimetic_jax.train.store.runs import Run


class Events:
    """The numbers of metrics.jsonl in DIR/ARM/SEED; all of them once it is closed.

    DIR is local or in a bucket.
    """

    def __init__(self, folder: str) -> None:
        need("--tensorboard", "tensorboard")
        self._folder = folder
        self._writers: dict[Run, Any] = {}

    def written(self, run: Run, line: Mapping[str, Any]) -> None:
        """A run has recorded a line; for `Comparison`."""
        from tensorboardX import SummaryWriter

        if run not in self._writers:
            self._writers[run] = SummaryWriter(
                f"{self._folder}/{run.arm}/{run.seed}", flush_secs=10
            )
        for name, value in line.items():
            if isinstance(value, int | float) and name != "step":
                self._writers[run].add_scalar(name, value, line["step"])

    def close(self) -> None:
        """Write what is left."""
        for writer in self._writers.values():
            writer.close()
