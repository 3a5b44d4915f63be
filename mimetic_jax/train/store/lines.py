"""Files of JSON lines, of which a kill may tear the last."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from mimetic_jax.base.errors import InputError
from mimetic_jax.train.store.places import Place

Line = dict[str, Any]


class Lines:
    """A file with a record per line. Processes that append take turns.

    Args:
        place: of the file.
    """

    def __init__(self, place: Place) -> None:
        self.place = place

    def read(self) -> list[Line]:
        """All records; the end of the file without a line end is what a kill left of a line.

        Raises:
            InputError: another line isn't a record. What comes after it may be a finished run, so
                nothing goes on and nothing is written.
        """
        if not self.place.exists():
            return []
        whole = self.place.read().split(b"\n")[:-1]
        return [self._record(line, number) for number, line in enumerate(whole, 1)]

    def append(self, record: Line) -> None:
        """Add a record; a partial line at the end is removed first."""
        self.place.parent.make()
        self.place.append_line(json.dumps(record))

    def rewrite(self, records: Iterable[Line]) -> None:
        """Replace all records."""
        self.place.write("".join(f"{json.dumps(record)}\n" for record in records))

    def _record(self, line: bytes, number: int) -> Line:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # neither JSON nor, of bytes, text
            record = None
        if not isinstance(record, dict):
            raise InputError(
                f"{self.place} line {number} is not a JSON object: restore the file, or move it "
                "away"
            )
        return record
