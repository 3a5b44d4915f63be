"""What can be trained: rows of the papers, or of a user's config file, as comparisons."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launch.weights import Weights
from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.command import shipped
from mimetic_jax.command.assign import set_field
from mimetic_jax.train.statistics import ENOUGH
from papers import FIGURES, TABLES
from papers.record import Row, Small, Table

if TYPE_CHECKING:
    from ml_collections import ConfigDict


SEEDS = tuple(range(ENOUGH))
"""Of each row unless others are asked for: the fewest that a claim takes."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """A comparison to train; rows with the same one share their runs.

    Attributes:
        config: its file.
        arguments: of the file, without `init`.
        flags: of main.py; of two that set the same field the last counts, and is kept alone.
        small: whether it is scaled down from the paper's.
        weights: that replace their placeholder in the arguments, if any.
    """

    config: str
    arguments: str = ""
    flags: tuple[str, ...] = ()
    small: bool = False
    weights: Weights | None = None

    def __post_init__(self) -> None:
        last = {flag.partition("=")[0]: flag for flag in self.flags}
        object.__setattr__(self, "flags", tuple(last.values()))

    @property
    def key(self) -> str:
        """One line that names it.

        >>> Spec("configs/cifar10_vit.py", "width=96", ("--config.batch=64",)).key
        'cifar10_vit:width=96 --config.batch=64'
        """
        name = pathlib.PurePath(self.config).stem
        return " ".join([f"{name}:{self.arguments}".rstrip(":"), *self.flags])

    @property
    def folder(self) -> str:
        """Of its workdir, among those of other comparisons.

        >>> Spec("configs/cifar10_vit.py", "width=96,depth=6").folder
        'cifar10_vit_width=96_depth=6_a4b6'
        """
        mark = hashlib.sha256(self.key.encode()).hexdigest()[:4]
        name = re.sub(r"[^\w=.+-]", "_", f"{pathlib.PurePath(self.config).stem}_{self.arguments}")
        folder = f"{name.strip('_')[:80]}_{mark}{'_small' if self.small else ''}"
        return f"{folder}_from_{self.weights.mark}" if self.weights else folder

    def config_argument(self, init: Sequence[str]) -> str:
        """The value of main.py's --config that trains these arms."""
        chosen = f"init={'+'.join(init)}" if init else ""
        arguments = self.arguments
        if self.weights:
            arguments = arguments.replace(self.weights.placeholder, self.weights.path)
        return f"{self.config}:{','.join(filter(None, (arguments, chosen)))}".rstrip(":")

    def load(self, init: Sequence[str]) -> ConfigDict:
        """The configuration of these arms, as main.py reads it.

        Raises:
            InputError: for an unknown file, argument, arm or field.
        """
        if not (path := pathlib.Path(self.config)).is_file():
            raise InputError(f"there is no config file {self.config!r}")
        _, _, text = self.config_argument(init).partition(":")
        config = shipped.read(path, text)
        for flag in self.flags:
            set_field(config, flag)
        return config


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row of a table or figure, full or scaled down, with what trains it.

    Attributes:
        table: its name, such as "attention/table1".
        number: of the row in its table, from 1.
        row: as published.
        spec: of its comparison.
        init: the arms that it needs, or groups of them, as the config's `init` takes them: those
            that it prints, its own, then the table's controls.
        seeds: of its runs, unless others are asked for; none for those of its config file.
    """

    table: str
    number: int
    row: Row
    spec: Spec
    init: tuple[str, ...]
    seeds: tuple[int, ...] = ()


def own_entries(config: str, rows: Sequence[str], flags: Sequence[str]) -> list[Entry]:
    """Rows of a user's config file, as those of a table.

    Args:
        config: the file.
        rows: its arguments, one text for each row.
        flags: of main.py, for all rows.

    Raises:
        InputError: two rows are the same, or a flag sets what the queue sets.
    """
    if len(set(rows)) < len(rows):
        raise InputError(f"rows must be different: {', '.join(rows)}")
    for flag in flags:
        if not re.match(r"--config\.\w", flag) or re.match(r"--config\.seeds\b", flag):
            raise InputError(
                f"{flag}: after -- come --config.FIELD=VALUE; seeds are set by --seeds"
            )
    table = pathlib.PurePath(config).stem
    return [
        Entry(table, number, Row(row or "default"), Spec(config, row, tuple(flags)), ())
        for number, row in enumerate(rows or [""], 1)
    ]


def entries(name: str, row: int | None = None, small: bool = False) -> list[Entry]:
    """The rows of a table or a figure, or one of them; without those that have no scaled form.

    Raises:
        InputError: there is no such table, figure or row, or nothing of it has a scaled form.
    """
    if name not in TABLES | FIGURES:
        raise unknown("table or figure", name, [*TABLES, *FIGURES])
    shown = TABLES.get(name) or FIGURES[name]
    if row is not None and not 1 <= row <= (count := len(_entries(name, False))):
        raise InputError(f"--row={row}: {name} has rows 1 to {count}")
    every = scaled_entries(name) if small else _entries(name, False)
    found = [entry for entry in every if row in (None, entry.number)]
    if small and not (found or shown.small):
        raise InputError(f"{name} has no form that a CPU trains in minutes: leave out --small")
    return found


def scaled_entries(name: str) -> list[Entry]:
    """The rows of a table or a figure that have a scaled form, in that form; perhaps none."""
    shown = TABLES.get(name) or FIGURES[name]
    return [entry for entry in _entries(name, True) if entry.row.small or shown.small]


def _entries(name: str, small: bool) -> list[Entry]:
    shown = TABLES.get(name) or FIGURES[name]
    table = shown if isinstance(shown, Table) else TABLES.get(shown.table, _NO_TABLE)
    found = []
    for number, row in enumerate(shown.rows or table.rows, 1):
        scale = (row.small or shown.small) if small else None
        spec = Spec(
            row.config or table.config,
            scaled(row.arguments, scale) if scale else row.arguments,
            (*table.flags, *row.flags, *(scale.flags if scale else ())),
            small,
        )
        init = tuple(dict.fromkeys((*row.published, *row.arms, *table.controls)))
        found.append(Entry(name, number, row, spec, init, table.seeds or SEEDS))
    return found


_NO_TABLE = Table("", "", "", "", (), controls=())


def with_weights(rows: Sequence[Entry], path: str) -> list[Entry]:
    """The rows with these weights in those that take them; the others as they are.

    Args:
        rows: of a table, or some of them.
        path: of a file, or of the workdir of a first stage.

    Raises:
        InputError: if no row takes such weights, if rows take different ones, or the path can't
            serve.
    """
    weights = Weights.read(path)
    lacking = [entry for entry in rows if entry.row.needs]
    fed = [entry for entry in lacking if weights.placeholder in entry.row.arguments]
    if not fed:
        one, *_ = lacking or rows
        what = f"needs {one.row.needs}" if lacking else "starts from no weights"
        raise InputError(f"--file={path}: {one.table} row {one.number} {what}")
    if len({entry.row.needs for entry in fed}) > 1:
        numbers = ", ".join(str(entry.number) for entry in fed)
        raise InputError(f"--file={path}: rows {numbers} start from different weights: add --row")
    return [
        dataclasses.replace(entry, spec=dataclasses.replace(entry.spec, weights=weights))
        if entry in fed
        else entry
        for entry in rows
    ]


def scaled(arguments: str, small: Small) -> str:
    """A row's arguments, scaled down.

    >>> scaled("width=192,depth=12,heads=3", Small("patch=4", {"width": 0.5}))
    'width=96,depth=12,heads=3,patch=4'
    """
    values = _pairs(arguments)
    for name, factor in small.times.items():
        if name in values:
            values[name] = str(max(1, round(float(values[name]) * factor)))
    values |= _pairs(small.arguments)
    return ",".join(f"{name}={value}" for name, value in values.items())


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(",") if pair)
