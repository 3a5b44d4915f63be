"""Files of JSON lines with checksums: damage is reported, and a torn last line is left out."""

from __future__ import annotations

import contextlib
import fcntl
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from mimetic_jax.errors import InputError
from mimetic_jax.host import files
from mimetic_jax.train.store.places import Place

Line = dict[str, Any]

_SUM = "crc32"


class Lines:
    """A file with a record per line.

    Args:
        place: of the file.
        chained: whether a line's checksum covers the lines before it too, so that a line that is
            missing, doubled or moved counts as damage. Such a file has one writer at a time, this
            object. Lines of other files are independent, and processes that append take turns.
    """

    def __init__(self, place: Place, *, chained: bool = False) -> None:
        self.place, self._chained = place, chained
        self._last: int | None = None  # the checksum of the last line

    def read(self) -> list[Line]:
        """All records, without a partial line at the end, which a kill left.

        Raises:
            InputError: another line is damaged. What comes after it may be a finished run, so
                nothing goes on and nothing is written.
        """
        return self._parsed(self.place.read())[0] if self.place.exists() else []

    def append(self, record: Line) -> None:
        """Add a record; a partial line at the end is removed first."""
        self.place.parent.make()
        if self._chained:
            if self._last is None:
                self._repair()
            self._write(record)
            return
        with self._taking_turns():
            self._repair()
            self._write(record)
            self.place.sync()

    def rewrite(self, records: Iterable[Line]) -> None:
        """Replace all records."""
        self._last, text = 0, ""
        for record in records:
            text += self._line(record)
        self.place.write(text)

    def mark(self) -> list[int]:
        """The number of records and the last checksum: files that agree in both are the same."""
        content = self.place.read() if self.place.exists() else b""
        records, last = self._parsed(content)
        return [len(records), last]

    def _repair(self) -> None:
        content = self.place.read() if self.place.exists() else b""
        records, self._last = self._parsed(content)
        if content and not content.endswith(b"\n"):
            self.rewrite(records)

    def _write(self, record: Line) -> None:
        before = self._last
        try:
            self.place.append(self._line(record))
        except BaseException:
            self._last = before
            raise

    def _line(self, record: Line) -> str:
        plain = json.dumps(record)
        self._last = self._sum(plain, self._last or 0)
        return json.dumps({**record, _SUM: self._last}) + "\n"

    def _sum(self, plain: str, before: int) -> int:
        return zlib.crc32(plain.encode(), before if self._chained else 0)

    def _parsed(self, content: bytes) -> tuple[list[Line], int]:
        """The records, and the last checksum."""
        lines = content.split(b"\n")
        records, last = [], 0
        for number, line in enumerate(lines, 1):
            record = _object(line)
            found = record.pop(_SUM, None) if record else None
            if record and found == (expected := self._sum(json.dumps(record), last)):
                records.append(record)
                last = expected
            elif number < len(lines):
                reason = "damaged" if record is None or not self._chained else "out of order"
                raise InputError(
                    f"{self.place} line {number} is {reason}: restore the file, or move it away"
                )
        return records, last

    @contextlib.contextmanager
    def _taking_turns(self) -> Iterator[None]:
        if self.place.in_bucket:
            yield
            return
        with files.open_to_write(self.place.path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _object(line: bytes) -> Line | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # neither JSON nor, of bytes, text
        return None
    return record if isinstance(record, dict) else None
