"""What the results lack, run after run."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Sequence

from ml_collections import ConfigDict

from launch.marks import marks
from launch.registry import Entry, Spec, mark_of
from launch.results import Line, Results
from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.data.home import INSTALLED
from mimetic_jax.train import config as configs
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.places import Place
from mimetic_jax.train.store.runs import Run

Say = Callable[[str], None]

READY = 4
"""Comparisons whose data and programs are kept."""


@dataclasses.dataclass(frozen=True)
class Job:
    """Runs of an arm that may have lines in the results: one, or all that train together.

    Attributes:
        spec: their comparison.
        arm: of it.
        seeds: of the runs.
    """

    spec: Spec
    arm: str
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        first, *others = self.seeds
        which = f"{len(self.seeds)} seeds" if others else f"seed {first}"
        return f"{self.spec.key}{' (small)' * self.spec.small}, {self.arm} {which}"

    @property
    def only(self) -> str:
        """The runs as main.py's --only names them."""
        return self.arm if len(self.seeds) > 1 else f"{self.arm}/{self.seeds[0]}"


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
        workdir: Place,
        *,
        seeds: Sequence[int] = (),
        only: Sequence[str] = (),
        data_dir: str = "",
        command: str = "",
        say: Say = print,
    ) -> None:
        self.results, self.workdir, self.command, self.say = results, workdir, command, say
        self._data_dir = data_dir
        self.init: dict[Spec, tuple[str, ...]] = {}
        for entry in entries:
            if entry.lacks:
                left_out = f"{entry.table} row {entry.number} is left out"
                say(f"{left_out}: it needs {entry.lacks}, given by --file")
                continue
            init = (*self.init.get(entry.spec, ()), *entry.init)
            self.init[entry.spec] = tuple(dict.fromkeys(init))
        own = {entry.spec: entry.seeds for entry in entries}
        self.configs = {spec: self.config(spec, self.init[spec]) for spec in self.init}
        for spec, config in self.configs.items():
            # Where a config says that seeds train together, their number is its own too.
            config.seeds = tuple(seeds or (config.together == 1 and own[spec]) or config.seeds)
        self.marks = {spec: marks(spec, init) for spec, init in self.init.items()}
        known = {name for arms in self.marks.values() for name in arms}
        for name in only:
            if name not in known:
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

    def folder(self, spec: Spec) -> Place:
        """The workdir of a comparison."""
        return self.workdir / spec.folder

    def jobs(self, share: int = 0, of: int = 1) -> list[Job]:
        """The runs without a line, seeds outermost: the table has n = 1 before any n is 2.

        Where runs train together, all seeds of an arm are one job. Each of several processes trains
        a share, the same whatever has a line already.
        """
        left = [
            Job(spec, arm, tuple(config.seeds) if config.together > 1 else (seed,))
            for seed in dict.fromkeys(s for config in self.configs.values() for s in config.seeds)
            for spec, config in self.configs.items()
            for arm in self.arms[spec]
            if seed in config.seeds
        ]
        return [job for job in list(dict.fromkeys(left))[share::of] if self._lacking(job)]

    def train(self, jobs: Sequence[Job]) -> dict[str, list[str]]:
        """Train runs and add a line for each that finishes; returns what failed, by the reason.

        Args:
            jobs: in this order.

        Raises:
            Preempted: if stopped; the same call continues.
        """
        failures: dict[str, list[str]] = defaultdict(list)
        blocked = set[Spec]()  # whose data is missing
        # Rows take turns, seed by seed: the data and programs of some are kept.
        ready = functools.lru_cache(READY)(lambda spec: Comparison(self.configs[spec], self.say))
        with preemption.listening():
            for number, job in enumerate(jobs, 1):
                if preemption.should_stop():
                    raise preemption.Preempted("stopped between two runs")
                if job.spec in blocked:
                    continue
                label = f"[{number}/{len(jobs)}] {job}"
                try:
                    comparison = ready(job.spec)
                    runs = comparison.claimed(self.folder(job.spec), job.only)
                except InputError as error:  # missing data of one row stops no other
                    if str(error) not in failures:
                        self.say(f"{label}: left out: {error}")
                    blocked.add(job.spec)
                    failures[str(error)].append(job.spec.key)
                    continue
                self.say(label)
                try:
                    failures["diverged"] += [str(job) for _ in comparison.train_all(runs)]
                    self._collect(job)
                except InputError as error:
                    failures[str(error)].append(str(job))
                    self.say(f"{label}: failed: {error}")
        return {reason: names for reason, names in failures.items() if names}

    def _lacking(self, job: Job) -> list[int]:
        """The seeds of a job that have no line."""
        mark = self.marks[job.spec][job.arm].result
        return sorted({*job.seeds} - self.results.runs(job.spec, job.arm, mark).keys())

    def _collect(self, job: Job) -> None:
        """Add the lines of the runs that are finished."""
        config = configs.arms_of(self.configs[job.spec])[job.arm]
        about = {
            "config": job.spec.key,
            "small": job.spec.small,
            "digest": self.marks[job.spec][job.arm].result,
            "batch": config.batch,
            "dtype": config.model.get("dtype", "float32"),
            "command": self.command,
            "weights": mark_of(job.spec.file) if job.spec.file else None,
        }
        for seed in self._lacking(job):
            if record := Run.of(self.folder(job.spec), job.arm, seed).record():
                self.results.append(job.spec, Line(**vars(record), **about))
