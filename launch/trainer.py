"""Training what rows lack: plain rows by arm and seed, those of a ladder arm by arm."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ml_collections import ConfigDict

from launch.results import Line, Results
from launch.rows import folder, load
from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.data.home import INSTALLED
from mimetic_jax.train import rates
from mimetic_jax.train.config import arms_of
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.verdicts import DEFAULT
from papers.record import Row

if TYPE_CHECKING:
    from mimetic_jax.train.comparison import Comparison
    from mimetic_jax.train.group import Say


class Job(NamedTuple):
    """A run of a row; where arms choose their rates, an arm with its trials and all its seeds."""

    row: Row
    arm: str
    seed: int | None

    def __str__(self) -> str:
        scale = ", scaled down" if self.row.is_small else ""
        what = "at its own rate" if self.seed is None else f"seed {self.seed}"
        return f"{self.row.table}, {self.row.label}{scale}: {self.arm} {what}"


class Trainer:
    """Trains runs and adds a line for each that finishes.

    Attributes:
        rows: those that it was given, with the arms of groups by name.
        failures: what failed, by the reason.
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
        """`seeds` are compared in place of a row's own; `only` are the names of arms, all unless
        given."""
        self.results, self.workdir, self.command, self.say = results, workdir, command, say
        self.failures: dict[str, list[str]] = defaultdict(list)
        self._seeds, self._only, self._data_dir = tuple(seeds), only, data_dir
        self._of_row: Comparison | None = None  # whose data and programs the next one shares
        self.rows = []
        for row in rows:
            if row.missing_file or row.is_untrained:
                why = "it isn't trained here"
                if row.missing_file:
                    why = f"it needs {row.missing_file}, given by --file"
                say(f"{row.table} row {row.number} is left out: {why}")
                self.rows.append(row)
                continue
            config = load(row)
            # If a config says that seeds train together, their number is its own too.
            own = (config.together == 1 and row.seeds) or config.seeds
            row = dataclasses.replace(row, arms=tuple(arms_of(config)))
            self.rows.append(dataclasses.replace(row, seeds=self._seeds or tuple(own)))
        known = {arm for row in self.rows if not row.missing_file for arm in row.arms}
        for name in only:
            if known and name not in known:  # else every row is left out
                raise unknown("arm", name, known)

    def config(self, row: Row) -> ConfigDict:
        """The configuration of a row, with the folder of its data set."""
        config = load(row)
        config.seeds = row.seeds or config.seeds
        if self._data_dir and config.data.name not in INSTALLED:
            config.data.dir = self._data_dir
        return config

    def folder(self, row: Row) -> AnyPath:
        """The workdir of a row."""
        return self.workdir / folder(row)

    def arms(self, row: Row) -> list[str]:
        """The arms of a row that are asked for."""
        return [arm for arm in row.arms if not self._only or arm in self._only]

    def jobs(self, share: int = 0, shares: int = 1) -> list[Job]:
        """What lacks lines, row by row, all arms of a seed before the next seed.

        Each of several processes trains a share, the same whatever has a line already.
        """
        return [job for job in self.every()[share::shares] if not self._is_done(job)]

    def every(self) -> list[Job]:
        """All jobs, whether they are done or not, in that order."""
        return [
            Job(row, arm, seed)
            for row in self.rows
            if not row.missing_file
            for seed in ((None,) if row.ladder else row.seeds)
            for arm in self.arms(row)
        ]

    def _is_done(self, job: Job) -> bool:
        if job.seed is not None:
            return job.seed in self.results.runs(job.row, job.arm)
        chosen = self.results.choices(job.row).get(job.arm)
        assert job.row.ladder is not None
        if chosen is None or job.row.ladder.untried(self.results.tried(job.row, job.arm)):
            return False
        runs = self.results.runs(job.row.at(chosen.rate), job.arm)
        return runs.keys() >= set(job.row.seeds)

    def train(self, jobs: Sequence[Job]) -> None:
        """Train jobs; what fails is in `failures`, and stops no other."""
        for row, grouped in itertools.groupby(jobs, key=lambda job: job.row):
            of_row, self._of_row = list(grouped), None
            if row.ladder:
                self._train_at_own_rates(row, [job.arm for job in of_row])
            else:
                self._train(row, [(job.arm, job.seed) for job in of_row if job.seed is not None])

    def _train_at_own_rates(self, row: Row, arms: Sequence[str]) -> None:
        """Each arm climbs the ladder by its trials, then trains what is compared at its best."""
        assert row.ladder is not None
        for wanted in rates.climb(row.ladder, arms, functools.partial(self.results.tried, row)):
            for rate, trying in wanted.items():
                runs = [(arm, seed) for seed in row.ladder.trials for arm in trying]
                if not self._train(row.at(rate, trial=True), runs):
                    return
        chosen = self.results.choices(row)
        for arm in sorted(arms, key=lambda arm: arm != DEFAULT):
            if arm not in chosen:
                self.failures["diverged"].append(f"{row.table}, {row.label}, {arm} at each rate")
                continue
            self.say(f"{row.label}: {arm} is compared at {rates.shown(chosen[arm].rate)}")
            self._train(row.at(chosen[arm].rate), [(arm, seed) for seed in row.seeds])

    def _train(self, row: Row, runs: Sequence[tuple[str, int]]) -> bool:
        """Train the runs of a row that have no line; returns whether it could be done."""
        from mimetic_jax.train.comparison import Comparison  # half a second: lists train nothing

        lacking = [(arm, seed) for arm, seed in runs if seed not in self.results.runs(row, arm)]
        if not lacking:
            return True
        workdir = self.folder(row)
        try:
            self.results.check_recipe(row)
            config = self.config(row)
            before = self._of_row
            comparison = before.alike(config) if before else Comparison(config, self.say)
            self._of_row = comparison
            comparison.is_trial = row.is_trial
            comparison.claim_runs(workdir)
            self.say(f"{row.table}: {row.label}, {row.recipe}")
            diverged = comparison.train_all(
                [Run.of(workdir, arm, seed) for arm, seed in lacking],
                lambda run: self._collect(row, comparison.config, run),
            )
        except InputError as error:  # missing data of one row stops no other
            if str(error) not in self.failures:
                self.say(f"{row.table}, {row.label}: {error}")
            self.failures[str(error)].append(f"{row.table}, {row.label}")
            return False
        for run in () if row.is_trial else diverged:
            self.failures["diverged"].append(f"{row.table}, {row.label}, {run}")
        return True

    def _collect(self, row: Row, config: ConfigDict, run: Run) -> None:
        """Add the line of a run, if it is finished and has none."""
        if run.arm not in self.arms(row) or run.seed in self.results.runs(row, run.arm):
            return
        if record := run.record():
            arm, (table, label, small) = arms_of(config)[run.arm], row.key
            self.results.append(
                Line(
                    **vars(record),
                    table=table,
                    row=label,
                    small=small,
                    rate=row.rate,
                    recipe=row.recipe,
                    batch=arm.batch,
                    dtype=arm.model.get("dtype", "float32"),
                    base=arm.model.get("base") or "",
                    command=self.command,
                )
            )
