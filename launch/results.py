"""The lines of results/PAPER/TABLE.jsonl: a line is the record of a finished run, with the table,
the row and the command that it belongs to. They are the only source of the numbers in docs/."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

from mimetic_jax.base.errors import InputError
from mimetic_jax.train.rates import Choice, Search
from mimetic_jax.train.record import Record
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import Lines
from mimetic_jax.train.verdicts import ArmResult, compared, corrected
from papers.record import Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line(Record):
    """The record of a run, with where it belongs and how it was trained.

    Runs are found by table, row, small, arm, rate and seed. The rest is provenance.

    Attributes:
        table, row: the names of the table and of the row.
        small: whether the row was scaled down.
        rate: the step of the row's ladder, if it has one.
        recipe: the configuration: its file, arguments and fields.
        batch, dtype, base: fields of the configuration of the arm.
        command: what trained it.
        remark: what the same command would do otherwise today, such as draw other noise, or that
            nobody can check out its code.
    """

    table: str
    row: str
    small: bool = False
    rate: float | None = None
    recipe: str = ""
    batch: int = 0
    dtype: str = "float32"
    base: str = ""
    command: str = ""
    remark: str = ""


class ResultStore:
    """The lines of a folder; those of a row are checked when they are asked for."""

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = pathlib.Path(folder)
        self._raw: dict[object, list[tuple[str, Mapping[str, object]]]] = defaultdict(list)
        self._lines: dict[object, list[Line]] = {}
        for path in sorted(self.folder.rglob("*.jsonl")):
            for number, line in enumerate(Lines(path).read(), 1):
                if "row" in line:  # else it isn't a run, such as throughput
                    key = line.get("table"), line["row"], line.get("small")
                    self._raw[key].append((f"{path} line {number}", line))

    def lines(self, row: Row) -> list[Line]:
        """The lines of a row, in the order in which they were added."""
        if row.key not in self._lines:
            raw = self._raw[row.key]
            self._lines[row.key] = [Line.from_json(line, where) for where, line in raw]
        return self._lines[row.key]

    def trained(self, row: Row) -> list[tuple[object, object]]:
        """Arm and seed of each line of a row, unchecked."""
        return [(line.get("arm"), line.get("seed")) for _, line in self._raw[row.key]]

    def runs(self, row: Row, arm: str, rate: float | None = None) -> dict[int, Line]:
        """The runs of an arm by seed, at a rate if its row has a ladder; the first count."""
        by_seed: dict[int, Line] = {}
        for line in self.lines(row):
            if line.arm == arm and line.rate == rate:
                by_seed.setdefault(line.seed, line)
        return by_seed

    def check_recipe(self, row: Row, recipe: str, rate: float | None, trial: bool) -> None:
        """Refuse to add to lines that were trained otherwise than the row is today."""
        trials = row.ladder.trials if row.ladder else ()
        for line in self.lines(row):
            alike = line.rate == rate and (line.seed in trials) == trial
            if alike and line.recipe != recipe:
                raise InputError(
                    f"its lines were trained as {line.recipe}, and it is {recipe} now: give it "
                    "another label, or delete its lines"
                )

    def search(self, row: Row, arms: Sequence[str]) -> Search:
        """The search of arms for their rates, whose trials are lines of the row or of another."""
        assert row.ladder is not None
        tried = dataclasses.replace(row, runs_of=row.rates_of or row.runs_of)
        return Search(row.ladder, arms, functools.partial(self.runs, tried))

    def choices(self, row: Row) -> dict[str, Choice]:
        """The rate of each arm that tried the first rates of the row's ladder."""
        return self.search(row, row.arms).choices() if row.ladder else {}

    def compared_arms(self, row: Row) -> dict[str, ArmResult]:
        """What each arm of a row reached, compared; of a ladder at its own best rate.

        There p is corrected for the number of the arms that are no controls (Holm).
        """
        if row.ladder:
            at = {arm: self.runs(row, arm, best.rate) for arm, best in self.choices(row).items()}
            trials = set(row.ladder.trials)
            runs = {
                arm: {seed: own[seed] for seed in own.keys() - trials} for arm, own in at.items()
            }
        else:
            runs = {arm: self.runs(row, arm) for arm in row.arms}
        self._check_data(row, runs)
        results = compared([ArmResult(arm, own, row.label) for arm, own in runs.items() if own])
        results = corrected(results) if row.ladder else results
        return {result.arm: result for result in results}

    def _check_data(self, row: Row, runs: Mapping[str, Mapping[int, Line]]) -> None:
        # Lines of older versions don't know their data.
        known = (line for own in runs.values() for line in own.values() if line.data)
        data = {line.data: f"{line.arm} seed {line.seed} on {line.data}" for line in known}
        if len(data) > 1:
            raise InputError(
                f"{row.table}, {row.label} was trained on data of several fingerprints, "
                f"{', '.join(data.values())}: they can't be compared; delete the lines of all but "
                "one"
            )

    def append(self, line: Line) -> None:
        """Add a line; it is on disk when this returns."""
        path = self.folder / f"{line.table}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        Lines(path).append(line.to_json())
        files.sync(path)
        key = line.table, line.row, line.small
        self._raw[key].append((str(path), line.to_json()))
        if key in self._lines:
            self._lines[key].append(line)
