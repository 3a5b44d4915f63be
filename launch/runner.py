"""Trains missing runs: a job per arm and seed, or one per arm if it searches its learning rate."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import pathlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from ml_collections import ConfigDict

from launch.results import Line, ResultStore
from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.command import shipped
from mimetic_jax.command.assign import assign
from mimetic_jax.data.home import INSTALLED
from mimetic_jax.train import rates
from mimetic_jax.train.config import arms_of
from mimetic_jax.train.schema import Config
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run
from papers.record import FILE, Row

if TYPE_CHECKING:
    from mimetic_jax.train.arm import Arm
    from mimetic_jax.train.comparison import Comparison
    from mimetic_jax.train.group import Say


class Job(NamedTuple):
    """A run of a row; where arms search their rates, an arm with its trials and all its seeds."""

    row: Row
    arm: str
    seed: int | None

    def __str__(self) -> str:
        scale = ", scaled down" if self.row.is_small else ""
        what = "at its own rate" if self.seed is None else f"seed {self.seed}"
        return f"{self.row.table}, {self.row.label}{scale}: {self.arm} {what}"


def load(row: Row, file: str = "") -> ConfigDict:
    """The configuration of a row with its arms, or with those of its config, if one of the two
    names none; `file` has the weights that it starts from."""
    arguments = {
        name: file if file and value == FILE else value for name, value in row.arguments.items()
    }
    assert row.config is not None
    if row.arms and "init" in shipped.arguments_of(row.config):
        arguments["init"] = row.arms
    config = shipped.configuration(row.config, arguments)
    for name, value in row.fields.items():
        assign(config, name, value)
    return config


def folder(row: Row, file: str = "") -> str:
    """The workdir of a row, among those of others: by table, label, scale and file.

    >>> from papers import rows_of
    >>> folder(rows_of("attention/table1")[1])
    'attention_table1/96_12_3'

    Long labels are cut, and end in a digest of what is lost.

    >>> folder(Row("width=96 " * 20, table="cifar10_vit"))[-20:]
    '96_width=96_14ebb47e'
    """
    table, label, _ = row.key
    name = re.sub(r"[^\w=.+'-]+", "_", label) or "row"
    if len(name) > 80:
        name = f"{name[:71]}_{hashlib.sha256(label.encode()).hexdigest()[:8]}"
    scale = "_small" if row.is_small else ""
    source = f"_from_{pathlib.Path(file).stem}" if file and row.needs else ""
    return f"{table.replace('/', '_')}/{name}{scale}{source}"


class RowRunner:
    """Trains the runs of rows and adds a line for each that finishes.

    Attributes:
        rows: those that it was given, with the arms of groups by name.
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
        self.results, self.workdir, self.command, self.say = results, workdir, command, say
        self.failures: dict[str, list[str]] = defaultdict(list)
        self.file, self._only, self._data_dir = file, only, data_dir
        self._last: tuple[Row, Comparison] | None = None
        self.rows = []
        for row in rows:
            if self.lacks(row):
                why = f"needs {row.needs}, given by --file" if row.needs else "isn't trained here"
                say(f"{row.table} row {row.number} is left out: it {why}")
                self.rows.append(row)
                continue
            config = load(row, file)
            # If a config says that seeds train together, their number is its own too.
            own = (config.together == 1 and row.seeds) or config.seeds
            config.seeds = tuple(seeds or own)
            ladder = row.ladder or rates.ladder(config)
            row = dataclasses.replace(
                row,
                arms=tuple(arms_of(config)),
                seeds=config.seeds,
                ladder=ladder if ladder.first else None,
            )
            self.rows.append(row)
        known = {arm for row in self.rows if not self.lacks(row) for arm in row.arms}
        for name in only:
            if known and name not in known:  # else every row is left out
                raise unknown("arm", name, known)

    def lacks(self, row: Row) -> bool:
        """Whether a row can't be trained here: it starts from a file, or has no arm."""
        return row.is_untrained or bool(row.needs and not self.file)

    def config(self, row: Row) -> ConfigDict:
        """The configuration of a row, with the folder of its data set."""
        config = load(row, self.file)
        config.seeds = row.seeds or config.seeds
        if self._data_dir and config.data.name not in INSTALLED:
            config.data.dir = self._data_dir
        return config

    def folder(self, row: Row) -> AnyPath:
        """The workdir of a row."""
        return self.workdir / folder(row, self.file)

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
            if not self.lacks(row)
            for seed in ((None,) if row.ladder else row.seeds)
            for arm in self.arms(row)
        ]

    def _is_done(self, job: Job) -> bool:
        if job.seed is not None:
            return job.seed in self.results.runs(job.row, job.arm)
        search = self.results.search(job.row, [job.arm])
        choice = search.choices().get(job.arm)
        if choice is None or search.untried(job.arm):
            return False
        return self.results.runs(job.row, job.arm, choice.rate).keys() >= set(job.row.seeds)

    def train(self, jobs: Sequence[Job]) -> None:
        """Train jobs; what fails is in `failures`, and stops no other."""

        def comparison_of(job: Job) -> tuple[Row, str]:
            return job.row, job.arm if job.row.ladder else ""

        for (row, arm), of_comparison in itertools.groupby(jobs, key=comparison_of):
            name = ", ".join(filter(None, [row.table, row.label, arm]))
            try:
                self._train(row, arm, {(job.arm, job.seed) for job in of_comparison})
            except InputError as error:  # missing data of one row stops no other
                if str(error) not in self.failures:
                    self.say(f"{name}: {error}")
                self.failures[str(error)].append(name)

    def _train(self, row: Row, arm: str, runs: Set[tuple[str, int | None]]) -> None:
        """Train runs of a row; on a ladder those of one arm, trials before what is compared."""
        from mimetic_jax.train.comparison import Comparison  # half a second: lists train nothing

        config, search = self.config(row), None
        if row.ladder:
            search, config.rates = self.results.search(row, [arm]), row.ladder.first
            if row.rates_of and search.untried(arm):
                of = ", ".join(row.rates_of)
                raise InputError(f"its rate is chosen by trials of {of}: train these first")
            if config.arms:
                config.arms = Config({arm: config.arms[arm]})
        last, before = self._last or (None, None)
        if before and last == row:  # arms of a row share data and programs
            comparison = before.alike(config)
        else:
            comparison = Comparison(config, self.say)
        self._last = row, comparison
        self.say(f"{row.table}: {row.label}, {row.recipe()}")
        for stage, workdir in comparison.stages(self.folder(row), search):
            lines = {name: self._line(row, own, arm) for name, own in stage.arms.items()}
            for line in lines.values():
                recipe, rate = line["recipe"], line["rate"]
                self.results.check_recipe(row, recipe, rate, stage.tolerate_divergence)
            own = {key: (line["arm"], line["rate"]) for key, line in lines.items()}
            lacking = [
                run
                for run in stage.runs(workdir)
                if (arm or (run.arm, run.seed) in runs)
                and run.seed not in self.results.runs(row, *own[run.arm])
            ]
            if lacking:
                every = stage.runs(workdir)
                every.claim()
                diverged = every.train(lacking, functools.partial(self._collect, lines))
                for run in () if stage.tolerate_divergence else diverged:
                    self.failures["diverged"].append(f"{row.table}, {row.label}, {run}")

    def _collect(self, lines: Mapping[str, Mapping[str, Any]], run: Run) -> None:
        """Add the line of a run that has ended, if it is finished."""
        if record := run.record():
            self.results.append(Line(**{**vars(record), **lines[run.arm]}))

    def _line(self, row: Row, arm: Arm, searching: str) -> dict[str, Any]:
        """The fields of an arm's lines that records don't have; an arm that is searching has an arm
        of a trial at each rate."""
        (table, label, small), config, fields = row.key, arm.config, dict[str, Any]()
        if searching:
            fields["optimizer.learning_rate"] = config.optimizer.learning_rate
            if config.data.get("held_out"):
                fields["data.held_out"] = config.data.held_out
        return {
            "table": table,
            "row": label,
            "small": small,
            "arm": searching or arm.name,
            "rate": fields.get("optimizer.learning_rate"),
            "recipe": row.recipe(fields),
            "batch": config.batch,
            "dtype": config.model.get("dtype", "float32"),
            "base": config.model.get("base") or "",
            "command": self.command,
        }
