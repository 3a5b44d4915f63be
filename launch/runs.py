"""What the results lack, run after run."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from launch.marks import marks
from launch.registry import Entry, Spec
from launch.results import Line, Results
from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.data.home import INSTALLED
from mimetic_jax.train import config as configs
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run

Say = Callable[[str], None]


class Job(NamedTuple):
    """A run of a comparison."""

    spec: Spec
    arm: str
    seed: int

    def __str__(self) -> str:
        scaled = " (small)" * self.spec.small
        return f"{self.spec.key}{scaled}, {self.arm} seed {self.seed}"


class Queue:
    """Comparisons of rows, their runs, and what is left of them.

    Args:
        entries: rows; those that share a comparison share its runs.
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
        entries: Sequence[Entry],
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
        self._data_dir = data_dir
        init: dict[Spec, tuple[str, ...]] = {}
        for entry in entries:
            if entry.lacks:
                left_out = f"{entry.table} row {entry.number} is left out"
                say(f"{left_out}: it needs {entry.lacks}, given by --file")
            else:
                every = (*init.get(entry.spec, ()), *entry.init)
                init[entry.spec] = tuple(dict.fromkeys(every))
        own = {entry.spec: entry.seeds for entry in entries}
        self.configs = {spec: self.config(spec, arms) for spec, arms in init.items()}
        for spec, config in self.configs.items():
            # Where a config says that seeds train together, their number is its own too.
            config.seeds = tuple(seeds or (config.together == 1 and own[spec]) or config.seeds)
        self.marks = {spec: marks(spec, arms) for spec, arms in init.items()}
        known = {name for arms in self.marks.values() for name in arms}
        for name in only:
            if known and name not in known:  # else every row is left out
                raise unknown("arm", name, known)
        self.arms = {
            spec: tuple(name for name in arms if not only or name in only)
            for spec, arms in self.marks.items()
        }

    def config(self, spec: Spec, init: Sequence[str]) -> ConfigDict:
        """The configuration of a comparison, with the folder of its data set."""
        config = spec.load(init)
        if self._data_dir and config.data.name not in INSTALLED:
            config.data.dir = self._data_dir
        return config

    def folder(self, spec: Spec) -> AnyPath:
        """The workdir of a comparison."""
        return self.workdir / spec.folder

    def jobs(self, share: int = 0, of: int = 1) -> list[Job]:
        """The runs without a line, row by row, all arms of a seed before the next seed.

        Each of several processes trains a share, the same whatever has a line already.
        """
        return [job for job in self.every()[share::of] if self._lacks(job)]

    def every(self) -> list[Job]:
        """All runs, whether they have a line or not, in that order."""
        return [
            Job(spec, arm, seed)
            for spec, config in self.configs.items()
            for seed in config.seeds
            for arm in self.arms[spec]
        ]

    def train(self, jobs: Sequence[Job]) -> dict[str, list[str]]:
        """Train runs and add a line for each that finishes; returns what failed, by the reason.

        Args:
            jobs: in this order.

        Raises:
            Preempted: if `preemption.listening` and stopped; the same call continues.
        """
        failures: dict[str, list[str]] = defaultdict(list)
        for spec, of_spec in itertools.groupby(jobs, key=lambda job: job.spec):
            try:
                comparison = Comparison(self.configs[spec], self.say)
                comparison.claimed(self.folder(spec))
            except InputError as error:  # missing data of one row stops no other
                if str(error) not in failures:
                    self.say(f"{spec.key}: left out: {error}")
                failures[str(error)].append(spec.key)
                continue
            for part in self._parts(of_spec):
                if preemption.should_stop():
                    raise preemption.Preempted("stopped between two runs")
                more = f" and {len(part) - 1} more" * (len(part) > 1)
                self.say(f"[{jobs.index(part[0]) + 1}/{len(jobs)}] {part[0]}{more}")
                runs = [Run.of(self.folder(spec), job.arm, job.seed) for job in part]
                try:
                    diverged = comparison.train_all(runs)
                    failures["diverged"] += [f"{spec.key}, {run}" for run in diverged]
                    self._collect(part)
                except InputError as error:
                    failures[str(error)] += map(str, part)
                    self.say(f"failed: {error}")
        return {reason: names for reason, names in failures.items() if names}

    def _parts(self, jobs: Iterable[Job]) -> list[list[Job]]:
        """One run after the other; all of an arm where a config says that seeds train together."""
        parts = defaultdict[tuple[Any, ...], list[Job]](list)
        for job in jobs:
            parts[job[:2] if self.configs[job.spec].together > 1 else job].append(job)
        return list(parts.values())

    def _lacks(self, job: Job) -> bool:
        """Whether a run has no line."""
        mark = self.marks[job.spec][job.arm].result
        return job.seed not in self.results.runs(job.spec, job.arm, mark)

    def _collect(self, jobs: Sequence[Job]) -> None:
        """Add the lines of the runs that are finished."""
        for job in filter(self._lacks, jobs):
            spec, arm, seed = job
            if record := Run.of(self.folder(spec), arm, seed).record():
                config = configs.arms_of(self.configs[spec])[arm]
                about = {
                    "config": spec.key,
                    "small": spec.small,
                    "digest": self.marks[spec][arm].result,
                    "weights": self.marks[spec][arm].weights or None,
                    "batch": config.batch,
                    "dtype": config.model.get("dtype", "float32"),
                    "command": self.command,
                }
                self.results.append(spec, Line(**vars(record), **about))
