"""What can be trained: rows of the papers, or of a user's config file, as comparisons."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pathlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.command import shipped
from mimetic_jax.command.assign import set_field
from mimetic_jax.train.config import recorded_arms
from mimetic_jax.train.schema import digest
from mimetic_jax.train.statistics import ENOUGH
from mimetic_jax.train.store.claim import Claim
from papers import FIGURES, TABLES
from papers.record import Figure, Row, Table

if TYPE_CHECKING:
    from ml_collections import ConfigDict


SEEDS = tuple(range(ENOUGH))
"""Of each row unless others are asked for: the fewest that a claim takes."""

PLACEHOLDER = re.compile(r"FILE\.npz|FIRST_STAGE")
"""In a row's arguments: a file of weights, and a workdir of main.py."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """A comparison to train; rows with the same one share their runs.

    Attributes:
        config: its file.
        arguments: of the file, without `init`.
        flags: of main.py; of two that set the same field the last counts, and is kept alone.
        small: whether it is scaled down from the paper's.
        file: what replaces the placeholder in the arguments, if anything.
    """

    config: str
    arguments: str = ""
    flags: tuple[str, ...] = ()
    small: bool = False
    file: str = ""

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
        return f"{folder}_from_{mark_of(self.file)}" if self.file else folder

    def load(self, init: Sequence[str]) -> ConfigDict:
        """The configuration of these arms, as main.py reads it.

        Raises:
            InputError: for an unknown file, argument, arm or field.
        """
        if not (path := pathlib.Path(self.config)).is_file():
            raise InputError(f"there is no config file {self.config!r}")
        given = PLACEHOLDER.sub(lambda found: self.file or found[0], self.arguments)
        chosen = [f"init={'+'.join(init)}"] if init else []
        config = shipped.read(path, ",".join(filter(None, (given, *chosen))))
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

    @property
    def lacks(self) -> str:
        """What it starts from, if that isn't given."""
        return "" if self.spec.file else self.row.needs

    def starting_from(self, file: str) -> Entry:
        """The row with a file, or the workdir of a first stage, if it starts from such."""
        kind = "FIRST_STAGE" if pathlib.Path(file).is_dir() else "FILE.npz"
        if kind not in self.spec.arguments:
            return self
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, file=file))


def entries(name: str, small: bool = False, rows: Sequence[Row] = ()) -> list[Entry]:
    """The rows of a table or of a figure; with `small` those that have a scaled form, in it.

    Args:
        name: of the table or the figure.
        small: whether they are scaled down.
        rows: others in their place, such as what a figure draws untrained.
    """
    shown, found = TABLES.get(name) or FIGURES[name], []
    table = TABLES.get(shown.table, _NO_TABLE) if isinstance(shown, Figure) else shown
    for number, row in enumerate(rows or shown.rows or table.rows, 1):
        arguments, flags = row.arguments, (*table.flags, *row.flags)
        if small:
            if (scale := row.small or shown.small) is None:
                continue
            arguments, flags = scale.scaled(arguments), (*flags, *scale.flags)
        spec = Spec(row.config or table.config, arguments, flags, small)
        init = tuple(dict.fromkeys((*row.published, *row.arms, *table.controls)))
        found.append(Entry(name, number, row, spec, init, table.seeds or SEEDS))
    return found


_NO_TABLE = Table("", "", "", (), controls=())


def teacher_mark(file: str, start: str) -> str:
    """The mark of what a run starts from: of a workdir that of the arm which it names.

    Args:
        file: as of `mark_of`.
        start: its `init_from`, FILE/runs/ARM/SEED for an arm of a workdir.

    Raises:
        InputError: as `mark_of`; or the workdir has no such arm.
    """
    named = re.match(re.escape(f"{file}/runs/") + "([^/]+)", start)
    if not named:
        return mark_of(file)
    arms = recorded_arms(_claim(file).config)
    if named[1] not in arms:
        raise unknown(f"arm in --file={file}", named[1], arms)
    return digest({**arms[named[1]], "arms": {}})


def _claim(folder: str) -> Claim:
    if (claim := Claim.read(pathlib.Path(folder))) is None:
        raise InputError(f"--file={folder} is not a workdir of main.py: it has no config.json")
    return claim


@functools.cache
def mark_of(file: str) -> str:
    """12 hexadecimal digits of what runs start from; copies of a file have the same.

    A workdir's are those of its configuration without arms: more seeds and arms leave them.

    Raises:
        InputError: there is no such file, or it can't serve.
    """
    path = pathlib.Path(file)
    if "," in file:
        raise InputError(f"--file={file}: a config's argument can't hold its comma")
    if path.is_dir():
        return digest({**_claim(file).config, "arms": {}})
    if not path.is_file():
        raise InputError(f"--file={file}: there is no such file")
    if path.suffix not in (".npz", ".safetensors"):
        raise InputError(f"--file={file} is none of .npz, .safetensors")
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:12]
