"""What the results lack, run after run."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from launch.results import Line, Results
from launch.rows import folder, load, made
from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.data.home import INSTALLED
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.config import arms_of
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run
from papers.record import Row

Say = Callable[[str], None]


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

    Attributes:
        shown: the rows, with the arms of groups by name.
        rows: of each comparison a row with all arms that the rows need.
        configs: by comparison.

    Args:
        rows: those that share a comparison share its runs.
        results: where finished runs have their lines.
        workdir: of checkpoints, a subfolder per comparison.
        seeds: of each; those of its rows or its configuration where none are given.
        only: names of arms; all that the rows need unless given.
        data_dir: folder of the data sets, if any.
        command: recorded in the lines.
        say: prints a line.

    Raises:
        InputError: for an arm that no row has, or a row whose configuration can't be read.
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
        self._data_dir, self._only, self._made = data_dir, only, dict[Any, Any]()
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
            # Where a config says that seeds train together, their number is its own too.
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
        """Train runs and add a line for each that finishes; returns what failed, by the reason.

        Args:
            jobs: in this order.

        Raises:
            Preempted: if `preemption.listening` and stopped; the same call continues.
        """
        failures: dict[str, list[str]] = defaultdict(list)
        for key, grouped in itertools.groupby(jobs, key=lambda job: job.row.comparison):
            row, of_row = self.rows[key], list(grouped)
            try:
                comparison = Comparison(self.configs[key], self.say)
                comparison.claimed(self.folder(row))
            except InputError as error:  # missing data of one row stops no other
                if str(error) not in failures:
                    self.say(f"{row.key}: left out: {error}")
                failures[str(error)].append(row.key)
                continue
            self.say(f"[{jobs.index(of_row[0]) + 1}/{len(jobs)}] {of_row[0]}")
            runs = [Run.of(self.folder(row), job.arm, job.seed) for job in of_row]
            try:
                collect = functools.partial(self._collect, row)
                diverged = comparison.train_all(runs, collect)
                failures["diverged"] += [f"{row.key}, {run}" for run in diverged]
            except InputError as error:
                failures[str(error)] += [str(job) for job in of_row if self._lacks(job)]
                self.say(f"failed: {error}")
        return {reason: names for reason, names in failures.items() if names}

    def _lacks(self, job: Job) -> bool:
        """Whether a run has no line."""
        digest = self._made[job.row.comparison][job.arm]["digest"]
        return job.seed not in self.results.runs(job.row, job.arm, digest)

    def _collect(self, row: Row, run: Run) -> None:
        """Add the line of a run, if it is finished and has none."""
        if run.arm not in self.arms(row) or not self._lacks(Job(row, run.arm, run.seed)):
            return
        if record := run.record():
            about = {**self._made[row.comparison][run.arm], "command": self.command}
            line = Line(**vars(record), **about, config=row.key, small=row.is_small)
            self.results.append(row, line)
