"""metrics.jsonl: one whole line per record, each step once even if a run restarts."""

from __future__ import annotations

import json
import zlib
from typing import Any

from mimetic_jax.errors import InputError
from mimetic_jax.train.workdir.documents import damaged
from mimetic_jax.train.workdir.paths import AnyPath, append, write_atomically

_CHECKSUM = "crc32"


class MetricsFile:
    """The metrics of one run, appended line by line.

    A record has "step" and either training metrics or "eval_accuracy" and "eval_loss".
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """All records, without a partial line at the end, which a kill left.

        Raises:
            InputError: another line is damaged. Without it the records after it may be of a
                finished run, so nothing goes on and nothing is written.
        """
        if not self.path.exists():
            return []
        try:
            *lines, last = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise damaged(self.path, error.strerror or str(error)) from error
        records = []
        for number, line in enumerate(lines, 1):
            if (record := _record(line)) is None:
                raise InputError(
                    f"{self.path} line {number} is damaged: restore that line, or move the run's "
                    "folder away to train it again"
                )
            records.append(record)
        whole = _record(last)
        return records if whole is None else [*records, whole]

    def rewind(self, step: int) -> None:
        """Remove the records after a step, which is about to run again."""
        kept = [record for record in self.read() if record["step"] <= step]
        if not kept and not self.path.exists():
            return
        write_atomically(self.path, "".join(map(_line, kept)))

    def append(self, record: dict[str, Any]) -> None:
        append(self.path, _line(record))


def _line(record: dict[str, Any]) -> str:
    """A record with its checksum, since a changed digit would be another number."""
    return json.dumps({**record, _CHECKSUM: _checksum(record)}) + "\n"


def _checksum(record: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(record).encode())


def _record(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None if it holds none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # neither JSON nor, of bytes, text
        return None
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        return None
    checksum = record.pop(_CHECKSUM, None)  # lines of earlier versions have none
    return record if checksum in (None, _checksum(record)) else None
