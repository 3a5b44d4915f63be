"""What a table or figure is, as data: published ones, and those of our own questions.

A table of our own is an entry of `TABLES` in papers/questions.py, whose rows name arguments of the
`get_config` of a module of configs/, arms, and what differs from the table's.

Arms are named in configs/arms.py; norm_matched_NAME and permuted_NAME are the controls of NAME, and
tables find them by these names. `python launch/reproduce.py questions/small_images --data_dir=DIR`
trains what has no results yet. For a page, `<!-- table: questions/small_images -->` and
`<!-- end -->` in docs/, then a second command, `python launch/reproduce.py --docs`.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from mimetic_jax.train.rates import Ladder
from papers.ratios import Ratio

Arguments: TypeAlias = Mapping[str, Any]
"""Arguments of the `get_config` of a file of configs/, by name; arms are none of them."""

Fields: TypeAlias = Mapping[str, Any]
"""Values of fields of a configuration, by names such as "optimizer.warmup"."""
BFLOAT16: Fields = {"model.dtype": "bfloat16"}

SHORT: Fields = {
    "model.dtype": "float32",
    "epochs": 0.0,
    "steps": 400,
    "batch": 64,
    "eval.every": 200,
    "checkpoint_every": 200,
    "log_every": 50,
}
"""400 steps of 64 images: what a CPU trains in a minute."""

OWN_RATES = Ladder((1e-3, 2e-3, 4e-3))
"""Of rows that are scaled down, by one trial of each rate."""

THREE_TRIALS = Ladder(OWN_RATES.first, trials=(100, 101, 102))
"""Of rows that are scaled down: trials are tested on a fifth of the training images, held out."""

OWN_PARTS = Ladder(OWN_RATES.first, trials=(5, 6, 7))
"""Of rows whose seeds have images of their own: trials have others, and are tested on a fifth of
the training images that no seed has."""


def other_paper(name: str, default: float, mimetic: float, score: float) -> Mapping[str, float]:
    """Name what another paper has for its own initialization, from a secondary source.

    - procedural warm-up: Shinnick et al. Can You Learn to See Without Images? CVPR 2026.
    - conditioned: Conditioned Initialization for Attention. ICLR 2026, submission 25196.
    - course project: a public README; it trained with the structured paper's released code.
    """
    return {f"{name} (its default {default:.2f}, mimetic {mimetic:.2f})": score}


@dataclasses.dataclass(frozen=True)
class File:
    """The value of an argument that stands for a file of weights, and what that file has."""

    content: str

    def __str__(self) -> str:
        return "FILE.npz"


class Source(NamedTuple):
    """Another row: its runs are those of a row too, or its trials choose the row's rates alone."""

    table: str
    label: str
    rates_alone: bool = False


class Place(NamedTuple):
    """The table of a row, such as "attention/table1", its number there, from 1, and its scale."""

    table: str = ""
    number: int = 0
    is_small: bool = False


UNTRAINED = "not trained here"
"""The name in `Row.others` of a score of what this software has no more."""


@dataclasses.dataclass(frozen=True)
class Small:
    """How rows are scaled to what one CPU trains in minutes; `says` has it in words.

    Arguments replace a row's, `times` has factors of them, and fields count after all others. With
    a ladder each arm has its own rate, since that of a large model suits no arm of a small one.
    `keeps` are the ratios that the method of its rows depends on. Where one differs by more than
    `ratios.FAR`, `apart` says why.
    """

    arguments: Arguments = dataclasses.field(default_factory=dict)
    times: Mapping[str, float] = dataclasses.field(default_factory=dict)
    fields: Fields = dataclasses.field(default_factory=dict)
    says: str = ""
    ladder: Ladder | None = None
    keeps: tuple[Ratio, ...] = ()
    apart: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """A comparison to train: a row of a table, or a line or column of a published one.

    It is written with what is its own; `Table.named` adds what its table says for all rows. Its
    results are those of its table and label.

    Attributes:
        label: the row's name in the paper, or among its table's.
        arguments: arguments of the config; a `File` stands for the weights that the row starts
            from.
        published: the printed score per arm of the config, in the table's unit.
        arms: the arms that are trained. A row of `TABLES` is written with those for which nothing
            is printed; `Table.named` adds those that are, and the table's controls.
        others: printed scores of what has no arm here, by the paper's name, of the best of several
            arms, and of other papers: their recipe isn't known, so what their default reaches is in
            the name. A row that has these alone isn't trained.
        doubt: what keeps the numbers from being taken literally, if anything.
        fields: fields of the configuration; of two that set the same one the later counts.
        pairs: arms whose differences are tested at once, beside those from baselines.
        config, score, small, ladder, seeds: in the place of the table's.
        source: the row whose runs are its own too, or whose trials choose its rates.
        place: where it stands, and whether it is scaled down from the paper's.
    """

    label: str
    arguments: Arguments = dataclasses.field(default_factory=dict)
    published: Mapping[str, float] = dataclasses.field(default_factory=dict)
    arms: tuple[str, ...] = ()
    others: Mapping[str, float] = dataclasses.field(default_factory=dict)
    score: str = ""
    doubt: str = ""
    fields: Fields = dataclasses.field(default_factory=dict)
    pairs: tuple[tuple[str, str], ...] = ()
    config: ModuleType | None = None
    small: Small | None = None
    ladder: Ladder | None = None
    seeds: tuple[int, ...] = ()
    source: Source | None = None
    place: Place = dataclasses.field(default_factory=Place)

    @property
    def key(self) -> tuple[str, str, bool]:
        """What its runs are found by: the table, the label and whether it is scaled down."""
        table, label = self.place.table, self.label
        if self.source and not self.source.rates_alone:
            table, label, _ = self.source
        return table, label, self.place.is_small

    @property
    def needs(self) -> str:
        """The weights that it starts from; empty if it needs none."""
        files = (value.content for value in self.arguments.values() if isinstance(value, File))
        return next(files, "")

    def recipe(self) -> str:
        """Write its config, arguments, fields and ladder in a line, stored with its runs.

        >>> from configs import cifar10_vit
        >>> Row("", {"width": 96}, config=cifar10_vit, fields={"batch": 64}).recipe()
        'cifar10_vit:width=96 --config.batch=64'
        """
        assert self.config is not None
        stem = pathlib.PurePath(str(self.config.__file__)).stem
        given = ",".join(f"{name}={value}" for name, value in self.arguments.items())
        parts = [f"{stem}:{given}".rstrip(":")]
        parts += (f"--config.{name}={value}" for name, value in self.fields.items())
        if self.ladder:
            rates, seeds = (",".join(map(str, x)) for x in (self.ladder.first, self.ladder.trials))
            parts.append(f"--rates={rates} by trials of seed {seeds}")
        return " ".join(parts)

    @property
    def is_untrained(self) -> bool:
        """Whether it has no arms, but scores of others alone."""
        return bool(self.others) and not (self.published or self.arms)

    def scaled(self) -> Row:
        """Scale the row down by its `small`.

        >>> small = Small({"patch": 4}, {"width": 0.5})
        >>> Row("", {"width": 192, "depth": 12}, small=small).scaled().arguments
        {'width': 96, 'depth': 12, 'patch': 4}
        """
        small, arguments = self.small or Small(), dict(self.arguments)
        for name in small.times.keys() & arguments.keys():
            arguments[name] = max(1, round(arguments[name] * small.times[name]))
        arguments, fields = {**arguments, **small.arguments}, {**self.fields, **small.fields}
        return dataclasses.replace(
            self,
            place=self.place._replace(is_small=True),
            arguments=arguments,
            fields=fields,
            ladder=small.ladder or self.ladder,
        )


def _numbered(rows: tuple[Row, ...], table: str, small: Small | None) -> tuple[Row, ...]:
    """Give rows their table, number and scale."""
    return tuple(
        dataclasses.replace(row, place=Place(table, number), small=row.small or small)
        for number, row in enumerate(rows, 1)
    )


@dataclasses.dataclass(frozen=True)
class Table:
    """A published table, or numbers of a section or of our own that belong together.

    Attributes:
        score: the unit of its numbers, with the metric.
        controls: arms that every row is compared with, beside those that it prints.
        small: how to scale its rows down; None if that makes no sense for all rows.
        seeds: the seeds of its runs: by default the fewest that a claim takes.
        ladder: the learning rates among which each arm of a row chooses; None if rows have theirs.
    """

    title: str
    config: ModuleType
    rows: tuple[Row, ...]
    score: str = "accuracy %"
    controls: tuple[str, ...] = ("default", "norm_matched_mimetic")
    fields: Fields = dataclasses.field(default_factory=dict)
    small: Small | None = None
    doubt: str = ""
    hardware: str = ""
    seeds: tuple[int, ...] = (0, 1, 2)
    ladder: Ladder | None = None

    @classmethod
    def of(cls, title: str, config: ModuleType, *rows: Row, **options: Any) -> Table:
        """Make the table of these rows."""
        return cls(title, config, rows, **options)

    def named(self, name: str) -> Table:
        """Name the table; its rows get all that it says for them."""
        rows = (
            dataclasses.replace(
                row,
                fields={**self.fields, **row.fields},
                config=row.config or self.config,
                arms=()
                if row.is_untrained
                else tuple(dict.fromkeys((*row.published, *row.arms, *self.controls))),
                score=row.score or self.score,
                seeds=row.seeds or self.seeds,
                ladder=row.ladder or self.ladder,
            )
            for row in self.rows
        )
        return dataclasses.replace(self, rows=_numbered(tuple(rows), name, self.small))


@dataclasses.dataclass(frozen=True)
class Figure:
    """A published figure, and how to draw it from our networks.

    Attributes:
        draw: name of a function in `mimetic_jax.analysis.figures`.
        options: its arguments; "examples" is the number of test examples of a figure of networks.
        rows: what must have been trained for it; none if it needs no training, or has a `table`.
        table: name of the table whose runs it draws.
        starts: networks that are drawn as they start; those that need a file, if it is given.
        needs: what it takes beside that, such as pretrained weights; empty if nothing.
    """

    title: str
    draw: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    small: Small | None = None
    table: str = ""
    starts: tuple[Row, ...] = ()
    doubt: str = ""
    needs: str = ""

    def named(self, name: str) -> Figure:
        """Name the figure, as `Table.named` does a table."""
        rows, starts = (_numbered(rows, name, self.small) for rows in (self.rows, self.starts))
        return dataclasses.replace(self, rows=rows, starts=starts)
