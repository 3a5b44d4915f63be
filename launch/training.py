"""Train what the results lack, on this machine: run after run, stopped and continued anywhere."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from ml_collections import ConfigDict

from launch.digest import digest
from launch.registry import Entry, Spec
from launch.results import Line, Results
from mimetic_jax.errors import InputError, unknown
from mimetic_jax.train import config as configs
from mimetic_jax.train import report
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.tasks.task import score_of
from mimetic_jax.train.workdir.documents import read_config
from mimetic_jax.train.workdir.members import MembersFolder
from mimetic_jax.train.workdir.paths import AnyPath
from mimetic_jax.train.workdir.runs import Run

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Job:
    """A run that may have a line in the results, or all members of a population.

    Attributes:
        spec: its comparison.
        arm: of it.
        seed: of the run.
        members: of the population, 0 for a run.
    """

    spec: Spec
    arm: str
    seed: int = 0
    members: int = 0

    def __str__(self) -> str:
        which = f"{self.members} members" if self.members else f"seed {self.seed}"
        return f"{self.spec.key}{' (small)' * self.spec.small}, {self.arm} {which}"


class Queue:
    """Comparisons of rows, their runs, and what is left of them.

    Args:
        entries: rows; those that share a comparison share its runs.
        seeds: of each.
        only: names of arms; all that the rows need unless given.
        results: where finished runs have their lines.
        workdir: of checkpoints, a subfolder per comparison.
        data: folder by name of the data set, "" for all others.
        command: recorded in the lines.
        say: prints a line.
        members: of populations; as many as the configuration says unless given.

    Raises:
        InputError: for an arm that no row has, or a row whose configuration can't be read.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        seeds: Sequence[int],
        only: Sequence[str],
        results: Results,
        workdir: AnyPath,
        data: Mapping[str, str],
        command: str,
        say: Say = print,
        members: int = 0,
    ) -> None:
        self.results, self.workdir, self.command, self.say = results, workdir, command, say
        self._members = members
        self.seeds, self._data = tuple(seeds), data
        self.init: dict[Spec, tuple[str, ...]] = {}
        for entry in entries:
            if entry.row.needs and not entry.spec.weights:
                left_out = f"{entry.table} row {entry.number} is left out"
                say(f"{left_out}: it needs {entry.row.needs}, given by --file")
                continue
            init = (*self.init.get(entry.spec, ()), *entry.init)
            self.init[entry.spec] = tuple(dict.fromkeys(init))
        self.blocked: dict[Spec, str] = {}
        self.configs = {spec: self._config(spec) for spec in self.init}
        every = {spec: configs.arms(config) for spec, config in self.configs.items()}
        self.digests = {
            spec: {name: digest(arm, spec.weights) for name, arm in arms.items()}
            for spec, arms in every.items()
        }
        known = {name for arms in every.values() for name in arms}
        for name in only:
            if name not in known:
                raise unknown("arm", name, known)
        self.arms = {
            spec: tuple(name for name in arms if not only or name in only)
            for spec, arms in every.items()
        }

    def jobs(self, cost: Callable[[Spec], float] | None = None) -> list[Job]:
        """The runs without a line, seeds outermost: the table has n = 1 before any n is 2.

        Args:
            cost: of a comparison; with it the cheapest come first within a seed.
        """
        left = [
            Job(spec, arm, *((0, members) if (members := self.configs[spec].members) else (seed,)))
            for seed in self.seeds
            for spec in (sorted(self.arms, key=cost) if cost else self.arms)
            for arm in self.arms[spec]
        ]
        return [job for job in dict.fromkeys(left) if not self._has_line(job)]

    def folder(self, spec: Spec) -> AnyPath:
        """The workdir of a comparison."""
        return self.workdir / spec.folder

    def collect(self) -> int:
        """Add the lines of runs that finished elsewhere, as a cluster's jobs; how many.

        A workdir of another configuration is left alone.
        """
        ours = {spec for spec in self.configs if self._recognizes(spec)}
        found = [job for job in self.jobs() if job.spec in ours and self._finished(job)]
        for job in found:
            self._append(job)
        return len(found)

    def train(self, jobs: Sequence[Job], seconds: float = 0.0) -> list[str]:
        """Train runs and add a line for each that finishes; returns what failed.

        Args:
            jobs: in this order.
            seconds: after which everything stops, at a step; 0 for no limit.

        Raises:
            Preempted: if stopped; the same call continues.
        """
        failures: list[str] = []
        comparison: Comparison | None = None
        current: Spec | None = None
        with preemption.listening(), _alarm(seconds):
            for number, job in enumerate(jobs, 1):
                if preemption.should_stop():
                    raise preemption.Preempted("stopped between two runs")
                label = f"[{number}/{len(jobs)}] {job}"
                if job.spec != current and job.spec not in self.blocked:
                    try:
                        comparison, current = self._open(job.spec), job.spec
                    except InputError as error:  # missing data of one row stops no other
                        self.blocked[job.spec] = str(error)
                        failures.append(f"{job.spec.key}: {error}")
                if comparison is None or job.spec in self.blocked:
                    self.say(f"{label}: left out: {self.blocked[job.spec]}")
                    continue
                self.say(f"{label}: starts")
                try:
                    if not self._finished(job):
                        self._train(comparison, job)
                except InputError as error:
                    failures.append(f"{job}: {error}")
                    self.say(f"{label}: failed: {error}")
                    continue
                self._append(job)
        return failures

    def _train(self, comparison: Comparison, job: Job) -> None:
        if job.members:
            comparison.population(self.folder(job.spec), job.arm)
        else:
            comparison.run(self._run(job), lambda line: self.say(f"  {line}"))

    def _finished(self, job: Job) -> bool:
        if job.members:
            return self.population(job.spec, job.arm).trained >= job.members
        return self._run(job).finished()

    def population(self, spec: Spec, arm: str) -> MembersFolder:
        """Where an arm's members are."""
        return MembersFolder.of(self.folder(spec), arm)

    def _recognizes(self, spec: Spec) -> bool:
        path = self.folder(spec) / "config.json"
        if not path.exists():
            return False
        record = configs.to_json(self.configs[spec])
        return configs.difference(read_config(path), record) is None

    def _open(self, spec: Spec) -> Comparison:
        comparison = Comparison(self.configs[spec], self.say)
        comparison.open()
        comparison.claim(self.folder(spec))
        return comparison

    def _config(self, spec: Spec) -> ConfigDict:
        config = spec.load(self.init[spec])
        config.seeds = self.seeds
        if config.members and self._members:
            config.members = self._members
        return self.with_data(config)

    def with_data(self, config: ConfigDict) -> ConfigDict:
        """The configuration with the folder of its data set."""
        if folder := self._data.get(config.data.name, self._data.get("", "")):
            config.data.dir = folder
        return config

    def _run(self, job: Job) -> Run:
        return Run.of(self.folder(job.spec), job.arm, job.seed)

    def _has_line(self, job: Job) -> bool:
        mark = self.digests[job.spec][job.arm]
        if job.members:
            return self.results.members(job.spec, job.arm, mark) >= job.members
        return job.seed in self.results.runs(job.spec, job.arm, mark)

    def _append(self, job: Job) -> None:
        config = configs.arms(self.configs[job.spec])[job.arm]
        line = {
            "config": job.spec.key,
            "small": job.spec.small,
            "arm": job.arm,
            "digest": self.digests[job.spec][job.arm],
            "batch": config.batch,
            "dtype": config.model.get("dtype", "float32"),
            **(self._of_population(job) if job.members else self._of_run(job)),
            **({"weights": job.spec.weights.mark} if job.spec.weights else {}),
            "command": self.command,
        }
        self.results.append(job.spec, line)

    def _of_run(self, job: Job) -> Line:
        last = self._run(job).evaluations()[-1]
        score = score_of(last)
        result = report.ArmResult.read(self.folder(job.spec), job.arm, [job.seed], score)
        return {
            "seed": job.seed,
            "score": score.name,
            "value": result.reached[job.seed],
            "loss": last["eval_loss"],
            "examples": last["eval_count"],
            "steps": last["step"],
            "seconds": result.seconds[job.seed],
            "curve": result.curve[job.seed],
            **last.get("origin", {}),
        }

    def _of_population(self, job: Job) -> Line:
        folder = self.population(job.spec, job.arm)
        chunks = list(folder.chunks(job.members))
        names = {f"eval_{name}": 0.0 for name in chunks[0].curve}
        score = score_of(names)
        result = report.ArmResult.of_members(folder, job.arm, job.members, score)
        return {
            "members": job.members,
            "score": score.name,
            "values": [
                round(result.reached[seed], 6) if seed in result.reached else None
                for seed in range(job.members)
            ],
            "examples": chunks[0].count,
            "steps": int(chunks[0].curve[score.name][0][-1]),
            "chunk": folder.chunk_size,
            "seconds": sum(chunk.seconds for chunk in chunks),
            **chunks[-1].origin,
        }


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Ask this process to stop, as SIGTERM does, after some seconds; never if they are 0."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    if seconds:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
