"""results/*.jsonl: a line for each finished run, the only source of the numbers in docs/results.md.

A line has the comparison's key ("config", with "flags" and "small" in it), arm, seed, digest of the
arm's configuration, steps, batch, dtype, the score and its curve, the number of test examples,
seconds, the command and where it ran. The line of a population has all its members: their number
and the list of their scores, null for one that diverged, instead of a seed, a score and a curve.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from benchmarks.gpu.records import append_record, read_records
from launch.registry import Spec
from mimetic_jax.errors import InputError

Line: TypeAlias = dict[str, Any]

FIELDS = ("config", "small", "arm", "seed", "digest", "score", "value", "curve", "seconds")
"""Without which a line is of no use."""


def file_of(folder: pathlib.Path, spec: Spec) -> pathlib.Path:
    """The file of a comparison's lines: one for each config file, small runs apart.

    >>> file_of(pathlib.Path("results"), Spec("configs/ptb_char.py", small=True)).name
    'ptb_char_small.jsonl'
    """
    return folder / f"{pathlib.PurePath(spec.config).stem}{'_small' * spec.small}.jsonl"


class Results:
    """The lines of a folder.

    Raises:
        InputError: a line isn't JSON or lacks a field; the file is left as it is.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._lines: dict[tuple[str, bool], list[Line]] = {}
        for path in sorted(folder.glob("*.jsonl")):
            for number, line in enumerate(read_records(path), 1):
                self._add(line, f"{path} line {number}")

    def _add(self, line: Line, where: str) -> None:
        if "digest" not in line:  # such as throughput: it isn't a run
            return
        for run in _of_members(line) if "members" in line else [line]:
            if lacking := [name for name in FIELDS if name not in run]:
                raise InputError(f"{where} has no {', '.join(lacking)}: fix or delete that line")
            self._lines.setdefault((run["config"], run["small"]), []).append(run)

    def of(self, spec: Spec) -> list[Line]:
        """The lines of a comparison, of whatever digest."""
        return self._lines.get((spec.key, spec.small), [])

    def runs(self, spec: Spec, arm: str, digest: str) -> dict[int, Line]:
        """The lines of an arm by seed; of two with the same seed the first."""
        found: dict[int, Line] = {}
        for line in self.of(spec):
            if (line["arm"], line["digest"]) == (arm, digest):
                found.setdefault(line["seed"], line)
        return found

    def members(self, spec: Spec, arm: str, digest: str) -> int:
        """How many members the largest population of an arm has; 0 for none."""
        runs = self.runs(spec, arm, digest).values()
        return max((line.get("members", 0) for line in runs), default=0)

    def seeds(self, spec: Spec, arms: Iterable[str]) -> int:
        """For how many seeds all these arms have a line, of whatever digest."""
        seeds = [{line["seed"] for line in self.of(spec) if line["arm"] == arm} for arm in arms]
        return len(set.intersection(*seeds)) if seeds else 0

    def append(self, spec: Spec, line: Line) -> None:
        """Add a line; it is on disk when this returns."""
        append_record(file_of(self.folder, spec), line)
        self._add(line, "the new line")


def _of_members(line: Line) -> list[Line]:
    """A run for each member of a population that has a score."""
    seconds = line.get("seconds", 0.0) / max(line["members"], 1)
    return [
        {**line, "seed": seed, "value": value, "curve": [], "seconds": seconds}
        for seed, value in enumerate(line.get("values", ()))
        if value is not None
    ]


def stale(lines: Sequence[Line], digests: Mapping[str, str]) -> int:
    """How many lines are of another configuration than today's."""
    return len([line for line in lines if digests.get(line["arm"]) not in (None, line["digest"])])
