"""The runs of rows: those that have a line in results/*.jsonl, and the queue of what is left.

A line is the record of a finished run with the comparison that it belongs to and the command that
trained it: the only source of the numbers in docs/.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ml_collections import ConfigDict

from launch.rows import Made, folder, load, made
from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.data.home import INSTALLED
from mimetic_jax.train.config import arms_of
from mimetic_jax.train.controls import Control, matched
from mimetic_jax.train.record import Record
from mimetic_jax.train.report import COMPARED, ArmResult, compared
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import AnyPath, Lines
from mimetic_jax.train.store.runs import Run
from papers.record import Row

if TYPE_CHECKING:
    from mimetic_jax.train.group import Say


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line(Record, Made):
    """The record of a run, with the key of its row and the command that trained it.

    A remark says what the same command would do otherwise today, such as draw other noise, or that
    nobody can check out its code.
    """

    config: str
    small: bool
    command: str = ""
    remark: str = ""


OURS = ("ours ± sd (n)", *COMPARED)
"""Columns of what arms of the results reached."""


def ours(result: ArmResult | None) -> tuple[str, ...]:
    """The cells of these columns; none for an arm that isn't trained."""
    return (f"{result.shown()} ({len(result.reached)})", *result.compared()) if result else ()


class Results:
    """The lines of a folder; those of a row are checked when they are asked for."""

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = files.path_of(str(folder))
        self._found: dict[object, list[tuple[str, Mapping[str, object]]]] = defaultdict(list)
        self._lines: dict[object, list[Line]] = {}
        names = [name for name in files.names(self.folder) if name.endswith(".jsonl")]
        for path in (self.folder / name for name in names):
            for number, line in enumerate(Lines(path).read(), 1):
                if "digest" in line:  # else it isn't a run, such as throughput
                    key = line.get("config"), line.get("small")
                    self._found[key].append((f"{path} line {number}", line))

    def of(self, row: Row) -> list[Line]:
        """The lines of a row's comparison, of whatever digest."""
        key = row.key, row.is_small
        if key not in self._lines:
            found = self._found[key]
            self._lines[key] = [Line.from_json(line, where) for where, line in found]
        return self._lines[key]

    def trained(self, row: Row) -> list[tuple[object, object]]:
        """Arm and seed of each line of a row's comparison, unchecked."""
        found = self._found[row.key, row.is_small]
        return [(line.get("arm"), line.get("seed")) for _, line in found]

    def runs(self, row: Row, arm: str, digest: str = "") -> dict[int, Line]:
        """The runs by seed of an arm's configuration, that of its newest line unless given.

        Arms of another name may have it too: of two runs with the same seed that of its own name
        counts, then the first.
        """
        lines = self.of(row)
        digest = digest or next((one.digest for one in reversed(lines) if one.arm == arm), "")
        found: dict[int, Line] = {}
        same = (line for line in lines if line.digest == digest)
        for line in sorted(same, key=lambda line: line.arm != arm):
            found.setdefault(line.seed, line)
        return found

    def reached(self, row: Row) -> dict[str, ArmResult]:
        """What each arm of a row reached, in its runs of the configuration that it had last."""
        runs = {arm: of for arm in row.arms if (of := self.runs(row, arm))}
        last = {arm: next(reversed(of.values())) for arm, of in runs.items()}
        # Lines of older versions don't know their data.
        known = (line for of in runs.values() for line in of.values() if line.data)
        data = {line.data: f"{line.arm} seed {line.seed} on {line.data}" for line in known}
        if len(data) > 1:
            raise InputError(
                f"{row.key} was trained on data of several fingerprints, {', '.join(data.values())}"
                ": they can't be compared; delete the lines of all but one"
            )
        controls = matched(
            {arm: line.digest for arm, line in last.items()},
            {arm: Control(line.control, line.control_of) for arm, line in last.items()},
        )
        found = [ArmResult(arm, of, row.label, controls.get(arm, {})) for arm, of in runs.items()]
        return {one.arm: one for one in compared(found)}

    def append(self, row: Row, line: Line) -> None:
        """Add a line; it is on disk when this returns."""
        lines = Lines(self.folder / f"{row.stem}{'_small' * row.is_small}.jsonl")
        lines.append(line.to_json())
        files.sync(lines.path)
        self.of(row).append(line)
        self._found[row.key, row.is_small].append((str(lines.path), line.to_json()))


class Job(NamedTuple):
    """A run of a row."""

    row: Row
    arm: str
    seed: int

    def __str__(self) -> str:
        scaled = " (small)" * self.row.is_small
        return f"{self.row.key}{scaled}, {self.arm} seed {self.seed}"


class Queue:
    """Rows, their runs, and what is left of them.

    Rows that share a comparison share its runs and its subfolder of `workdir`. Seeds, unless given,
    are those of a row or of its configuration; `only` are the names of arms, all unless given.

    Attributes:
        shown: the rows, with the arms of groups by name.
        rows: a row per comparison, with all arms that the rows need.
        configs: the configurations by comparison.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        results: Results,
        workdir: AnyPath,
        *,
        seeds: Sequence[int] = (),
        only: Sequence[str] = (),
        data_dir: str = "",
        command: str = "",
        say: Say = print,
    ) -> None:
        self.results, self.workdir, self.command, self.say = results, workdir, command, say
        self.shown: list[Row] = []
        self.rows: dict[Any, Row] = {}
        self.configs: dict[Any, ConfigDict] = {}
        self._data_dir, self._only = data_dir, only
        self._made: dict[Any, dict[str, Made]] = {}
        for row in rows:
            if row.lacks:
                left_out = f"{row.table} row {row.number} is left out"
                say(f"{left_out}: it needs {row.lacks}, given by --file")
                self.shown.append(row)
                continue
            self.shown.append(dataclasses.replace(row, arms=tuple(arms_of(load(row)))))
            others = self.rows[row.comparison].arms if row.comparison in self.rows else ()
            every = tuple(dict.fromkeys((*others, *row.arms)))
            self.rows[row.comparison] = dataclasses.replace(row, arms=every)
        known = {arm for row in self.shown if not row.lacks for arm in row.arms}
        for name in only:
            if known and name not in known:  # else every row is left out
                raise unknown("arm", name, known)
        for key, row in self.rows.items():
            config = self.configs[key] = self.config(row)
            # If a config says that seeds train together, their number is its own too.
            config.seeds = tuple(seeds or (config.together == 1 and row.seeds) or config.seeds)
            self._made[key] = made(row, arms_of(config))

    def config(self, row: Row) -> ConfigDict:
        """The configuration of a row, with the folder of its data set."""
        config = load(row)
        if self._data_dir and config.data.name not in INSTALLED:
            config.data.dir = self._data_dir
        return config

    def folder(self, row: Row) -> AnyPath:
        """The workdir of a row."""
        return self.workdir / folder(row)

    def jobs(self, share: int = 0, of: int = 1) -> list[Job]:
        """The runs without a line, row by row, all arms of a seed before the next seed.

        Each of several processes trains a share, the same whatever has a line already.
        """
        return [job for job in self.every()[share::of] if self._lacks(job)]

    def every(self) -> list[Job]:
        """All runs, whether they have a line or not, in that order."""
        return [
            Job(row, arm, seed)
            for key, row in self.rows.items()
            for seed in self.configs[key].seeds
            for arm in self.arms(row)
        ]

    def arms(self, row: Row) -> list[str]:
        """The arms of a row's comparison that are asked for."""
        return [arm for arm in self._made[row.comparison] if not self._only or arm in self._only]

    def train(self, jobs: Sequence[Job]) -> dict[str, list[str]]:
        """Train runs and add a line for each that finishes; returns what failed, by the reason."""
        from mimetic_jax.train.comparison import Comparison  # half a second: lists train nothing

        failures: dict[str, list[str]] = defaultdict(list)
        for key, grouped in itertools.groupby(jobs, key=lambda job: job.row.comparison):
            row, of_row = self.rows[key], list(grouped)
            workdir = self.folder(row)
            try:
                comparison = Comparison(self.configs[key], self.say)
                comparison.claim_runs(workdir)
                self.say(f"[{jobs.index(of_row[0]) + 1}/{len(jobs)}] {of_row[0]}")
                runs = [Run.of(workdir, job.arm, job.seed) for job in of_row]
                diverged = comparison.train_all(runs, functools.partial(self._collect, row))
                failures["diverged"] += [f"{row.key}, {run}" for run in diverged]
            except InputError as error:  # missing data of one row stops no other
                if str(error) not in failures:
                    self.say(f"{row.key}: {error}")
                failures[str(error)].append(row.key)
        return {reason: names for reason, names in failures.items() if names}

    def _lacks(self, job: Job) -> bool:
        """Whether a run has no line."""
        digest = self._made[job.row.comparison][job.arm].digest
        return job.seed not in self.results.runs(job.row, job.arm, digest)

    def _collect(self, row: Row, run: Run) -> None:
        """Add the line of a run, if it is finished and has none."""
        if run.arm not in self.arms(row) or not self._lacks(Job(row, run.arm, run.seed)):
            return
        if record := run.record():
            about = {**vars(record), **vars(self._made[row.comparison][run.arm])}
            about |= {"config": row.key, "small": row.is_small, "command": self.command}
            self.results.append(row, Line(**about))
