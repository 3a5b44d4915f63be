"""Trains rows: each is a comparison in a workdir of its own, whose records are collected."""

from __future__ import annotations

import itertools
import pathlib
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ml_collections import ConfigDict

from launch.results import ResultStore, file_name
from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.command import shipped
from mimetic_jax.command.assign import assign
from mimetic_jax.data.paths import INSTALLED
from mimetic_jax.train.schema import Config
from mimetic_jax.train.store.files import AnyPath
from papers.record import File, Row

if TYPE_CHECKING:
    from mimetic_jax.train.comparison import Comparison
    from mimetic_jax.train.group import Say


class Job(NamedTuple):
    """An arm of a row, and the seeds that it trains with."""

    row: Row
    arm: str
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        scale = ", scaled down" if self.row.place.is_small else ""
        how = " at its own rate" * bool(self.row.ladder)
        seeds = f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"
        return f"{self.row.place.table}, {self.row.label}{scale}: {self.arm}{how}, {seeds}"


def load(row: Row, file: str = "") -> ConfigDict:
    """Load the configuration of a row, its arms and seeds; `file` replaces a `File`."""
    assert row.config is not None
    arguments = {
        name: (file or str(value)) if isinstance(value, File) else value
        for name, value in row.arguments.items()
    }
    if row.arms and "init" in shipped.arguments_of(row.config):
        arguments["init"] = row.arms
    config = shipped.configuration(row.config, arguments)
    for name, value in row.fields.items():
        assign(config, name, value)
    if config.together == 1:  # else the number of seeds is the configuration's own, too
        config.seeds = row.seeds or config.seeds
    return config


class RowRunner:
    """Trains what rows lack, and writes it to their results.

    Attributes:
        rows: those that it was given.
        failures: what failed, by the reason.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        results: ResultStore,
        workdir: AnyPath,
        *,
        seeds: Sequence[int] = (),
        only: Sequence[str] = (),
        file: str = "",
        data_dir: str = "",
        command: str = "",
        say: Say = print,
    ) -> None:
        """`seeds` are compared in place of a row's own; `only` are the names of arms, all unless
        given; rows that start from weights take those of `file`."""
        self.rows, self.results, self.file, self.say = rows, results, file, say
        self.failures: dict[str, list[str]] = defaultdict(list)
        self._workdir, self._command, self._data_dir = workdir, command, data_dir
        self._seeds, self._only = seeds, only
        for row in rows:
            if chosen := row.ladder and sorted(set(seeds) & set(row.ladder.trials)):
                raise InputError(
                    f"{row.place.table} row {row.place.number} chooses its rates by seed "
                    f"{chosen[0]}, which isn't compared: leave it out of --seeds"
                )
            if self.lacks(row):
                why = f"needs {row.needs}, given by --file" if row.needs else "isn't trained here"
                say(f"{row.place.table} row {row.place.number} is left out: it {why}")
        known = {arm for row in rows if not self.lacks(row) for arm in row.arms}
        for name in only:
            if known and name not in known:  # else every row is left out
                raise unknown("arm", name, known)

    def lacks(self, row: Row) -> bool:
        """Tell whether a row can't be trained: it starts from a file, or has no arm."""
        return row.is_untrained or bool(row.needs and not self.file)

    def config(self, row: Row) -> ConfigDict:
        """Load the configuration of a row, with the folder of its data set."""
        config = load(row, self.file)
        config.seeds = tuple(self._seeds) or config.seeds
        if self._data_dir and config.data.name not in INSTALLED:
            config.data.dir = self._data_dir
        return config

    def folder(self, row: Row) -> AnyPath:
        """Return the workdir of a row, among those of others.

        >>> from papers import rows_of
        >>> runner = RowRunner([], ResultStore("results"), pathlib.Path("runs"))
        >>> print(runner.folder(rows_of("attention/table1")[1]))
        runs/attention_table1/96_12_3
        """
        source = f"_from_{pathlib.Path(self.file).stem}" if self.file and row.needs else ""
        return self._workdir / row.key[0].replace("/", "_") / f"{file_name(row)}{source}"

    def arms(self, row: Row) -> list[str]:
        """List the arms of a row that are asked for."""
        return [arm for arm in row.arms if not self._only or arm in self._only]

    def every(self, share: int = 0, shares: int = 1) -> list[Job]:
        """List the arms of all rows with all seeds; of several processes each has a share."""
        jobs = []
        for row in self.rows:
            if not self.lacks(row):
                seeds = self.config(row).seeds
                jobs += [Job(row, arm, seeds) for arm in self.arms(row)]
        return jobs[share::shares]

    def jobs(self, share: int = 0, shares: int = 1) -> list[Job]:
        """List the arms of a share that lack results, with the seeds that they lack."""
        return [
            job._replace(seeds=seeds)
            for job in self.every(share, shares)
            if (seeds := self.results.missing(*job))
        ]

    def train(self, jobs: Sequence[Job]) -> None:
        """Train jobs; what fails is in `failures`, and stops no other.

        Arms of a row train as one comparison, or one by one if each searches its rate.
        """
        last: tuple[Row, Comparison] | None = None
        for (row, arm, seeds), alike in itertools.groupby(
            jobs, key=lambda job: (job.row, job.arm if job.row.ladder else "", job.seeds)
        ):
            like = last[1] if last and last[0] == row else None
            try:
                last = row, self._train(row, [job.arm for job in alike], seeds, like)
            except InputError as error:  # missing data of one row stops no other
                name = ", ".join(filter(None, [row.place.table, row.label, arm]))
                if str(error) not in self.failures:
                    self.say(f"{name}: {error}")
                self.failures[str(error)].append(name)

    def _train(
        self, row: Row, arms: Sequence[str], seeds: Sequence[int], like: Comparison | None
    ) -> Comparison:
        """Train arms in the workdir of their row, trials first, and collect the records.

        The comparison shares data and programs with one `like` it.
        """
        from mimetic_jax.train.comparison import Comparison  # half a second: lists train nothing

        self.results.check_recipe(row)
        config, search = self.config(row), None
        config.seeds = tuple(seeds)
        if config.arms:
            config.arms = Config({arm: config.arms[arm] for arm in arms})
        if row.ladder:
            config.rates, search = row.ladder.first, self.results.search(row, arms)
            if row.source and row.source.rates_alone and any(map(search.untried, arms)):
                raise InputError(
                    f"its rate is chosen by trials of {row.source.table}, {row.source.label}: "
                    "train these first"
                )
        comparison = like.alike(config) if like else Comparison(config, self.say)
        self.say(f"{row.place.table}: {row.label}, {row.recipe()}")
        for stage, folder in comparison.stages(self.folder(row), search):
            runs = stage.runs(folder)
            runs.checked_claim()  # else the records there are those of another recipe
            try:
                stage.train(folder)
            finally:
                self.results.collect(row, runs, self._command)
        return comparison
