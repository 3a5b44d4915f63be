"""Results as JSON lines that no kill tears for good."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, TypeAlias

from mimetic_jax.errors import InputError
from mimetic_jax.train.workdir.metrics import MetricsFile
from mimetic_jax.train.workdir.paths import write_atomically

Row: TypeAlias = dict[str, Any]


def read_rows(path: pathlib.Path) -> list[Row]:
    """The whole lines of a results file; what a kill left of the last one isn't there.

    Raises:
        InputError: if any other line is damaged: what follows it must not be run again.
    """
    rows = MetricsFile(path).read()
    lines = path.read_text().splitlines() if path.exists() else []
    if len(rows) < len(lines) - 1:
        raise InputError(f"{path} line {len(rows) + 1} isn't JSON: mend or delete that line")
    return rows


def append_row(path: pathlib.Path, row: Row) -> None:
    """Add a line, on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.read_text().endswith("\n"):
        write_atomically(path, "".join(json.dumps(whole) + "\n" for whole in read_rows(path)))
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def find_row(rows: Sequence[Row], **values: Any) -> Row | None:
    """The first row with these values.

    >>> find_row([{"seed": 0, "loss": 0.7}, {"seed": 1, "loss": 0.5}], seed=1)
    {'seed': 1, 'loss': 0.5}
    """
    items = values.items()
    return next((row for row in rows if all(row[name] == value for name, value in items)), None)
