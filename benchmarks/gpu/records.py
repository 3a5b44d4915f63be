"""Results as JSON lines; a line torn by a kill is dropped."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, TypeAlias

from mimetic_jax.errors import InputError

Record: TypeAlias = dict[str, Any]


def read_records(path: pathlib.Path) -> list[Record]:
    """The records of a results file, without a last line that a kill has torn.

    Raises:
        InputError: if another line is damaged: the jobs of the lines after it must not run again.
    """
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            if line.endswith("\n"):
                raise InputError(f"{path} line {number} isn't JSON: fix or delete it") from None
    return records


def append_record(path: pathlib.Path, record: Record) -> None:
    """Append a record; it is on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    from mimetic_jax.train.workdir.paths import write_atomically  # imports all of training

    if path.exists() and not path.read_text().endswith("\n"):
        write_atomically(path, "".join(json.dumps(whole) + "\n" for whole in read_records(path)))
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def find_record(records: Sequence[Record], **values: Any) -> Record | None:
    """The first record with these values.

    >>> find_record([{"seed": 0, "loss": 0.7}, {"seed": 1, "loss": 0.5}], seed=1)
    {'seed': 1, 'loss': 0.5}
    """
    items = values.items()
    return next(
        (record for record in records if all(record[name] == value for name, value in items)), None
    )
