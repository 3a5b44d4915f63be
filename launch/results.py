"""results/*.jsonl: a line for each finished run, the only source of the numbers in docs/.

A line is a record with the comparison that it belongs to and the command that trained it.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping

from launch.registry import Spec
from mimetic_jax.base.typed import from_json
from mimetic_jax.train.record import Record
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import Lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line(Record):
    """The record of a run, with the comparison that it belongs to.

    Attributes:
        config: the key of its comparison.
        small: whether that is scaled down from the paper's.
        digest: of the configuration of its arm: runs of other digests aren't compared.
        batch, dtype: of the configuration.
        command: that trained it.
        weights: mark of the file or first stage that it started from, if any.
        remark: what the same command would do otherwise today, such as draw other noise; or that
            its commit is in no clone, or its code was changed: nobody can check it out. Empty for
            most.
    """

    config: str
    small: bool
    digest: str
    batch: int = 0
    dtype: str = "float32"
    command: str = ""
    weights: str | None = None
    remark: str = ""


class Results:
    """The lines of a folder.

    Raises:
        InputError: a line isn't JSON or lacks a field; the file is left as it is.
    """

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = files.path_of(str(folder))
        self._lines: dict[tuple[str, bool], list[Line]] = {}
        for name in files.names(self.folder):
            if name.endswith(".jsonl"):
                for number, line in enumerate(Lines(self.folder / name).read(), 1):
                    self._add(line, f"{self.folder / name} line {number}")

    def _add(self, line: Mapping[str, object], where: str) -> None:
        if "digest" not in line:  # such as throughput: it isn't a run
            return
        run = from_json(Line, line, where, unknown_fields=True)
        self._lines.setdefault((run.config, run.small), []).append(run)

    def of(self, spec: Spec) -> list[Line]:
        """The lines of a comparison, of whatever digest."""
        return self._lines.get((spec.key, spec.small), [])

    def runs(self, spec: Spec, arm: str, digest: str) -> dict[int, Record]:
        """The runs of an arm by seed, also those of arms of another name and its configuration.

        Of two with the same seed that of its own name, then the first.
        """
        same = [line for line in self.of(spec) if line.digest == digest]
        found: dict[int, Record] = {}
        for line in sorted(same, key=lambda line: line.arm != arm):
            found.setdefault(line.seed, line)
        return found

    def append(self, spec: Spec, line: Line) -> None:
        """Add a line; it is on disk when this returns."""
        name = f"{pathlib.PurePath(spec.config).stem}{'_small' * spec.small}.jsonl"
        plain = json.loads(json.dumps(dataclasses.asdict(line)))
        lines = Lines(self.folder / name)
        lines.append(plain)
        files.sync(lines.path)
        self._add(plain, "the new line")
