"""results/*.jsonl: a line for each finished run, the only source of the numbers in docs/.

A line is a record with the comparison that it belongs to and the command that trained it.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import from_json
from mimetic_jax.train.record import Record
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import Lines
from papers.record import Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line(Record):
    """The record of a run, with the comparison that it belongs to.

    Attributes:
        config: the key of its row.
        small: whether that is scaled down from the paper's.
        digest: of the configuration of its arm: runs of other digests aren't compared.
        control_of: digests of the arms of which its arm is a control.
        batch, dtype, base: of the configuration.
        command: that trained it.
        weights: mark of the file or first stage that it started from, if any.
        remark: what the same command would do otherwise today, such as draw other noise; or that
            its commit is in no clone, or its code was changed: nobody can check it out. Empty for
            most.
    """

    config: str
    small: bool
    digest: str
    control_of: tuple[str, ...] = ()
    batch: int = 0
    dtype: str = "float32"
    base: str = ""
    command: str = ""
    weights: str | None = None
    remark: str = ""


class Results:
    """The lines of a folder; those of a row are checked when they are asked for.

    Raises:
        InputError: a line isn't JSON.
    """

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = files.path_of(str(folder))
        self._found: dict[object, list[tuple[Mapping[str, object], str]]] = {}
        self._lines: dict[object, list[Line]] = {}
        for name in files.names(self.folder):
            if name.endswith(".jsonl"):
                for number, line in enumerate(Lines(self.folder / name).read(), 1):
                    if "digest" in line:  # else it isn't a run, such as throughput
                        where = f"{self.folder / name} line {number}"
                        key = line.get("config"), line.get("small")
                        self._found.setdefault(key, []).append((line, where))

    def of(self, row: Row) -> list[Line]:
        """The lines of a row's comparison, of whatever digest.

        Raises:
            InputError: one lacks a field, or has one of another type.
        """
        key = row.key, row.is_small
        if key not in self._lines:
            self._lines[key] = [
                from_json(Line, line, where, unknown_fields=True)
                for line, where in self._found.get(key, ())
            ]
        return self._lines[key]

    def trained(self, row: Row) -> list[tuple[object, object]]:
        """Arm and seed of each line of a row's comparison, unchecked."""
        found = self._found.get((row.key, row.is_small), ())
        return [(line.get("arm"), line.get("seed")) for line, _ in found]

    def runs(self, row: Row, arm: str, digest: str = "") -> dict[int, Line]:
        """The runs of an arm by seed, also those of arms of another name and its configuration.

        Of two with the same seed that of its own name, then the first.

        Args:
            row: of the comparison.
            arm: its name.
            digest: of its configuration; that of its newest line unless given.
        """
        lines = self.of(row)
        digest = digest or next((one.digest for one in reversed(lines) if one.arm == arm), "")
        found: dict[int, Line] = {}
        same = (line for line in lines if line.digest == digest)
        for line in sorted(same, key=lambda line: line.arm != arm):
            found.setdefault(line.seed, line)
        return found

    def append(self, row: Row, line: Line) -> None:
        """Add a line; it is on disk when this returns."""
        lines = Lines(self.folder / f"{row.stem}{'_small' * row.is_small}.jsonl")
        lines.append(line.to_json())
        files.sync(lines.path)
        self.of(row).append(line)
        self._found.setdefault((row.key, row.is_small), []).append((line.to_json(), "the new line"))


def check_data(key: str, lines: Iterable[Line]) -> None:
    """Check that runs which are compared were trained on the same data.

    Raises:
        InputError: some weren't; lines of older versions don't know theirs.
    """
    known = [line for line in lines if line.data]
    for line in known:
        if line.data != known[0].data:
            one = known[0]
            raise InputError(
                f"{key}: {one.arm} seed {one.seed} was trained on data of fingerprint {one.data}, "
                f"{line.arm} seed {line.seed} on {line.data}: they can't be compared; delete the "
                "lines of one of them"
            )
