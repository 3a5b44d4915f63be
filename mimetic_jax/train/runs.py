"""The runs of a comparison in a workdir: its claim on the workdir, groups, and their training."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.base.version import source_version
from mimetic_jax.data import OWN_SIDES
from mimetic_jax.train import config as configs
from mimetic_jax.train import rates
from mimetic_jax.train.arm import Arms
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.cluster.processes import (
    agreed,
    check_processes_agree,
    is_first,
    wait_for_all,
)
from mimetic_jax.train.group import Group, Say
from mimetic_jax.train.journal import OnMetrics
from mimetic_jax.train.loop import train
from mimetic_jax.train.program import Program
from mimetic_jax.train.start import check_start
from mimetic_jax.train.store import files
from mimetic_jax.train.store.claim import Claim
from mimetic_jax.train.store.files import AnyPath, in_turn, locked
from mimetic_jax.train.store.runs import Run, write_group


@dataclasses.dataclass(frozen=True, eq=False)
class Runs(Sequence[Run]):
    """The runs of arms in a workdir, all arms of a seed before the next seed.

    Attributes:
        arms: the arms; their configuration has the seeds.
        tolerate_divergence: whether these are trials, for which divergence is the worst score.
    """

    workdir: AnyPath
    arms: Arms
    say: Say
    on_metrics: OnMetrics | None = None
    tolerate_divergence: bool = False

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | Sequence[Run]:
        return list(self)[index]

    def __len__(self) -> int:
        return len(self.arms) * len(self.arms.config.seeds)

    def __iter__(self) -> Iterator[Run]:
        seeds = self.arms.config.seeds
        return (Run.of(self.workdir, arm, seed) for seed in seeds for arm in self.arms)

    def claim(self) -> None:
        """Load the data, and claim the workdir."""
        claim = self.claim_with_data([run for run in self if not run.finished()])
        check_processes_agree(config=claim.config, code=source_version(), data=claim.data)
        if is_first():
            with in_turn(self.workdir):  # jobs that start at once have seeds of their own
                self.checked_claim(claim).write(self.workdir)
        wait_for_all("workdir")

    def claim_with_data(self, starting: Sequence[Run] = (), *, data: bool = True) -> Claim:
        """Load the data, which must be that of the workdir's runs, and return the claim on it.

        `starting` are runs whose `init_from` must have the weights of before, too, in the sizes of
        their models.
        """
        self.checked_claim()  # before what takes time
        if data:
            self.arms.load_data()
        fingerprints = {name: arm.source.fingerprint for name, arm in self.arms.items() if data}
        starts = {self.arms[run.arm].pretrained for run in starting}
        weights = {start.path: start.digest for start in starts if start}
        for name in dict.fromkeys(run.arm for run in starting):
            with self.arms.blaming(name):
                check_start(self.arms[name])
        claim = Claim(configs.to_json(self.arms.config), fingerprints, weights)
        with blaming(self.changed_sizes()):
            return self.checked_claim(claim)

    def checked_claim(self, ours: Claim | None = None) -> Claim:
        """Check that the workdir is of this configuration; more arms and seeds are welcome.

        `ours` has the fingerprints of what is loaded; it defaults to the configuration alone.
        """
        ours = ours or Claim(configs.to_json(self.arms.config), {})
        if before := Claim.read(self.workdir):
            return ours.joined(before, self.workdir)
        if files.names(self.workdir / "runs"):
            raise InputError(
                f"{self.workdir} has runs, but not their config.json: restore it, or choose "
                "another --workdir"
            )
        return ours

    def trained_claim(self) -> Claim:
        """Check the claim as `checked_claim` does; raise InputError if nothing was trained."""
        claim = self.checked_claim()
        Claim.of(self.workdir)
        return claim

    def changed_sizes(self) -> str:
        """Say how many images a folder of one's own has, if that changed since a run; else ""."""
        config, source = self.arms.config, self.arms.first.source
        now = np.array([source.info.num_train, source.info.num_test])
        for run in self if config.data.name in OWN_SIDES else ():
            record = run.record()
            if not record or record.diverged:
                continue
            then = np.array([record.train_examples, record.examples])
            if abs(now - then).max() > source.rounding:
                return (
                    f"{source.info.name} has {now[0]:,} train and {now[1]:,} test images, but had "
                    f"{then[0]:,} and {then[1]:,} when {run} was trained"
                )
        return ""

    def unfinished(self) -> str:
        """List the runs without a result by arm, or ""."""
        seeds = defaultdict[str, list[str]](list)
        for run in self:
            if run.record() is None:
                seeds[run.arm].append(str(run.seed))
        each = (f"{arm} seed{'s' * (len(of) > 1)} {', '.join(of)}" for arm, of in seeds.items())
        return "; ".join(each)

    def train(self) -> list[str]:
        """Train what isn't finished; returns the runs whose loss ceased to be finite."""
        diverged: list[str] = []
        for group in self._groups():
            number = self.index(next(run for run in group if run in self)) + 1
            kind, name = "run", str(group[0])
            if self.tolerate_divergence:
                kind = "trial"
                name = rates.describe_trial(group[0], self.arms[group[0].arm].peak)
            others = f" and {len(group) - 1} more" if len(group) > 1 else ""
            label = f"{kind} {number} of {len(self)}, {name}{others}"
            if agreed(all(run.finished() for run in group)):
                self.say(f"{label}: finished before")
            else:
                if preemption.should_stop():
                    raise preemption.Preempted("stopped between two runs")
                diverged += map(str, self._train_group(group, label))
        return diverged

    def _groups(self) -> list[tuple[Run, ...]]:
        """Group runs that train at once: those that began so, then up to `together` more.

        Which runs train at once enters their numbers in the last bits, so a group stays as it is.
        """
        began = {run: list(run.group) for run in self if run.began or run.finished()}
        known = {run for group in began.values() for run in group}
        groups: list[list[Run]] = []
        filling: dict[Program, list[Run]] = {}
        for run in self:
            if run in began and began[run] not in groups:
                groups.append(began[run])
            elif run not in known:  # else its group is there, or comes with another of its runs
                program = self.arms[run.arm].program
                group = filling.get(program)
                if group is None or len(group) == self.arms.config.together:  # none yet, or full
                    group = filling[program] = []
                    groups.append(group)
                group.append(run)
        for run in known:
            if run.arm not in self.arms:
                raise InputError(
                    f"{run} was started together with an arm that this configuration no longer "
                    "has. Restore the arm, or choose another --workdir."
                )
        return [tuple(group) for group in groups]

    def _train_group(self, runs: Sequence[Run], label: str) -> list[Run]:
        """Train a group; returns the runs whose loss ceased to be finite."""
        began = time.perf_counter()
        self.say(f"{label}: starts")

        def note(line: str) -> None:
            self.say(f"  {line}")

        try:
            with contextlib.ExitStack() as held:
                for run in runs if is_first() else ():
                    held.enter_context(locked(run.folder, note))
                if is_first():
                    write_group(runs)
                group = Group(runs, self.arms, note, self.on_metrics)
                held.callback(group.checkpoints.close)
                diverged = train(group, note)
                if self.tolerate_divergence:
                    group.journal.give_up(diverged)
        except OSError as error:
            raise InputError(
                f"{label}: {error}; once that is fixed, the same command continues from the "
                "newest checkpoint"
            ) from error
        if not diverged:
            self.say(f"{label}: done in {time.perf_counter() - began:.1f} s")
        return list(diverged)
