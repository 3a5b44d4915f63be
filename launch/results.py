"""The results of rows: results/PAPER/TABLE/ROW.jsonl is a header and the records of its runs.

Trials of learning rates are there too, as runs of arms that are named ARM-RATE. These files are the
only source of the numbers in docs/.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import from_json
from mimetic_jax.train.rates import Choice, Search, trial_name
from mimetic_jax.train.record import Record
from mimetic_jax.train.store.claim import check_fingerprint
from mimetic_jax.train.store.files import Lines, in_turn
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.verdicts import ArmResult, compared, corrected
from papers.record import Row


@dataclasses.dataclass(frozen=True)
class RowResults:
    """What a row has: how its runs were trained, and their records in the order of their ends.

    Attributes:
        table, row, small: the names of the table and of the row, and whether it was scaled down.
        recipe: the configuration: its file, arguments and fields.
        commands: what trained the runs.
        remarks: what the same commands would do otherwise today, by arm, such as draw other noise,
            or that nobody can check out its code.
    """

    table: str
    row: str
    small: bool = False
    recipe: str = ""
    commands: tuple[str, ...] = ()
    remarks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    records: tuple[Record, ...] = ()

    def runs(self, arm: str) -> dict[int, Record]:
        """Return the records of an arm by seed."""
        return {record.seed: record for record in self.records if record.arm == arm}


class ResultStore:
    """The results of a folder, read row by row on first use."""

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = pathlib.Path(folder)
        self._results: dict[object, RowResults] = {}

    def path(self, row: Row) -> pathlib.Path:
        """Return the file of a row."""
        return self.folder / row.key[0] / f"{file_name(row)}.jsonl"

    def of(self, row: Row) -> RowResults:
        """Return the results of a row; without a file they are empty."""
        if row.key not in self._results:
            self._results[row.key] = self._read(row)
        return self._results[row.key]

    def _read(self, row: Row) -> RowResults:
        path = self.path(row)
        header, *lines = Lines(path).read() or [_named(row)]
        results = from_json(RowResults, header, f"{path} line 1")
        if (results.table, results.row, results.small) != row.key:
            raise InputError(f"{path} is of {results.table}, {results.row}: move it back")
        records = tuple(
            Record.from_json(line, f"{path} line {number}") for number, line in enumerate(lines, 2)
        )
        for first, second in itertools.pairwise(sorted((x.arm, x.seed) for x in records)):
            if first == second:
                raise InputError(f"{path} has arm {first[0]} seed {first[1]} twice: delete one")
        return dataclasses.replace(results, records=records)

    def check_recipe(self, row: Row) -> None:
        """Refuse to add to results that were trained otherwise than the row is today."""
        results = self.of(row)
        if results.records and results.recipe != row.recipe():
            raise InputError(
                f"its results were trained as {results.recipe}, and it is {row.recipe()} now: give "
                f"it another label, or delete {self.path(row)}"
            )

    def collect(self, row: Row, runs: Iterable[Run], command: str) -> None:
        """Store the records of finished runs, in place of those of the same arm and seed.

        Raises:
            InputError: an arm has results on other data.
        """
        found = [record for run in runs if (record := run.record())]
        with in_turn(self.folder):  # other processes collect other arms of the row
            before = self._read(row)
            new = [record for record in found if record not in before.records]
            if not new:
                return
            for old, record in itertools.product(before.records, new):
                if old.arm == record.arm and old.data:  # else it is older than fingerprints
                    where = f"{self.path(row)}: arm {old.arm}"
                    check_fingerprint(where, "data", old.data, record.data)
            replaced = {(record.arm, record.seed) for record in new}
            kept = [old for old in before.records if (old.arm, old.seed) not in replaced]
            commands = list(dict.fromkeys((*before.commands, command)))
            header = {
                **_named(row),
                "recipe": row.recipe(),
                "commands": commands,
                "remarks": before.remarks,
            }
            records = [record.to_json() for record in (*kept, *new)]
            Lines(self.path(row)).rewrite([header, *records])
        self._results.pop(row.key, None)

    def search(self, row: Row, arms: Sequence[str]) -> Search:
        """Return the search of arms for rates, by the trials of the row or of its source."""
        assert row.ladder is not None
        tried = row
        if row.source and row.source.rates_alone:
            tried = dataclasses.replace(row, source=row.source._replace(rates_alone=False))

        def records(arm: str, rate: float) -> Mapping[int, Record]:
            return self.of(tried).runs(trial_name(arm, rate))

        return Search(row.ladder, arms, records)

    def choices(self, row: Row) -> dict[str, Choice]:
        """Choose the rate of each arm that tried the first rates of the row's ladder."""
        return self.search(row, row.arms).choices() if row.ladder else {}

    def missing(self, row: Row, arm: str, seeds: Iterable[int]) -> tuple[int, ...]:
        """List the seeds that an arm lacks: all of them while it searches its rate."""
        known = set(self.of(row).runs(arm))
        if row.ladder:
            search = self.search(row, [arm])
            known = known if search.choices() and not search.untried(arm) else set()
        return tuple(seed for seed in seeds if seed not in known)

    def compared_arms(self, row: Row) -> dict[str, ArmResult]:
        """Compare the arms of a row, those of a ladder at their best rates.

        With a ladder p is corrected for the number of arms that are not controls (Holm).
        """
        arms = self.choices(row) if row.ladder else row.arms
        runs = {arm: self.of(row).runs(arm) for arm in arms}
        results = compared([ArmResult(arm, own, row.label) for arm, own in runs.items() if own])
        results = corrected(results) if row.ladder else results
        return {result.arm: result for result in results}


def _named(row: Row) -> dict[str, object]:
    return dict(zip(("table", "row", "small"), row.key, strict=True))


def file_name(row: Row) -> str:
    """Turn a row's label and scale into the name of a file.

    >>> from papers import rows_of
    >>> file_name(rows_of("attention/table1", small=True)[1])
    '96_12_3_small'

    Long labels are cut, and end in a digest of what is lost.

    >>> file_name(Row("width=96 " * 20))[-20:]
    '96_width=96_14ebb47e'
    """
    _, label, is_small = row.key
    name = re.sub(r"[^\w=.+-]+", "_", label, flags=re.ASCII).strip("_") or "row"
    if len(name) > 80:
        name = f"{name[:71]}_{hashlib.sha256(label.encode()).hexdigest()[:8]}"
    return name + "_small" * is_small
