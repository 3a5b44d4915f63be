"""What a published table or figure is, as data."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, TypeAlias

Arguments: TypeAlias = Mapping[str, Any]
"""Arguments of the `get_config` of a file of configs/, by name; arms are none of them."""

Fields: TypeAlias = Mapping[str, Any]
"""Values of fields of a configuration, by names such as "optimizer.warmup"."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""No arguments, no fields."""


def theirs(name: str, default: float, mimetic: float, score: float) -> Mapping[str, float]:
    """What another paper has for its own initialization, from a secondary source: `Row.others`.

    - procedural warm-up: Shinnick et al. Can You Learn to See Without Images? CVPR 2026.
    - conditioned: Conditioned Initialization for Attention. ICLR 2026, submission 25196.
    - course project: a public README; it trained with the structured paper's released code.
    """
    return {f"{name} (its default {default:.2f}, mimetic {mimetic:.2f})": score}


FILE, FIRST_STAGE = "FILE.npz", "FIRST_STAGE"
"""Values of arguments that stand for a file of weights, and for a workdir of main.py."""


@dataclasses.dataclass(frozen=True)
class Small:
    """How rows are scaled to what one CPU trains in minutes; `says` has it in words.

    Arguments replace a row's, `times` has factors of them, and fields count after all others.
    """

    arguments: Arguments = dataclasses.field(default_factory=dict)
    times: Mapping[str, float] = dataclasses.field(default_factory=dict)
    fields: Fields = dataclasses.field(default_factory=dict)
    says: str = ""

    def scaled(self, arguments: Arguments) -> Arguments:
        """A row's arguments, scaled down.

        >>> Small({"patch": 4}, {"width": 0.5}).scaled({"width": 192, "depth": 12})
        {'width': 96, 'depth': 12, 'patch': 4}
        """
        given = {
            name: max(1, round(value * self.times[name])) if name in self.times else value
            for name, value in arguments.items()
        }
        return {**given, **self.arguments}


@dataclasses.dataclass(frozen=True)
class Row:
    """A comparison to train: a row of a table, or a line or column of a published one.

    Papers state what is their row's own. `launch.rows.rows` adds what its table says for all rows;
    such a row is complete, and those with the same `comparison` share their runs.

    Attributes:
        label: the row's name in the paper.
        arguments: arguments of the config. FILE.npz stands for the file that `needs` describes,
            FIRST_STAGE for the workdir of the training that it names.
        published: the printed score per arm of the config, in the table's unit.
        gains: the differences to the default that the paper prints beside them, per arm; signed
            as the scores are, where the sign is a color or an arrow.
        arms: arms, or groups of the config's `init`, for which nothing is printed. Of a complete
            row all of them: those that it prints, its own, then the table's controls.
        others: printed scores of what has no arm here, by the paper's name, and of other papers:
            of theirs the recipe isn't known, so what their default reaches is in the name.
        best: whether each printed score is the best of the row's printed arms.
        doubt: what keeps the numbers from being taken literally, if anything.
        fields: fields of the configuration; of two that set the same one the later counts.
        config, score, small: in the place of the table's.
        needs: what the row starts from, pretrained weights or a first stage; empty if nothing.
        table, number: its table's name, such as "attention/table1", and its place there, from 1.
        seeds: of its runs, unless others are asked for; none for those of its config file.
        is_small: whether it is scaled down from the paper's.
        file: what replaces FILE.npz or FIRST_STAGE, if given.
    """

    label: str
    arguments: Arguments = dataclasses.field(default_factory=dict)
    published: Mapping[str, float] = dataclasses.field(default_factory=dict)
    gains: Mapping[str, float] = dataclasses.field(default_factory=dict)
    arms: tuple[str, ...] = ()
    others: Mapping[str, float] = dataclasses.field(default_factory=dict)
    best: bool = False
    score: str = ""
    doubt: str = ""
    fields: Fields = dataclasses.field(default_factory=dict)
    config: ModuleType | None = None
    needs: str = ""
    small: Small | None = None
    table: str = ""
    number: int = 0
    seeds: tuple[int, ...] = ()
    is_small: bool = False
    file: str = ""

    @property
    def key(self) -> str:
        """One line that names its config, arguments and fields.

        >>> from configs import cifar10_vit
        >>> Row("", {"width": 96}, config=cifar10_vit, fields={"batch": 64}).key
        'cifar10_vit:width=96 --config.batch=64'
        """
        given = ",".join(f"{name}={value}" for name, value in self.arguments.items())
        fields = [f"--config.{name}={value}" for name, value in self.fields.items()]
        return " ".join([f"{self.stem}:{given}".rstrip(":"), *fields])

    @property
    def stem(self) -> str:
        """The name of its config file, without folder and suffix."""
        assert self.config is not None
        return pathlib.PurePath(str(self.config.__file__)).stem

    @property
    def comparison(self) -> tuple[str, bool, str]:
        """What its runs are of: rows with the same share them."""
        return self.key, self.is_small, self.file

    @property
    def lacks(self) -> str:
        """What it starts from, if that isn't given."""
        return "" if self.file else self.needs

    def starting_from(self, file: str) -> Row:
        """The row with a file, or the workdir of a first stage, if it starts from such."""
        kind = FIRST_STAGE if pathlib.Path(file).is_dir() else FILE
        return dataclasses.replace(self, file=file) if kind in self.arguments.values() else self


@dataclasses.dataclass(frozen=True)
class Table:
    """A published table, or numbers of a section that belong together.

    Attributes:
        score: the unit of its numbers, with the metric.
        controls: arms that every row is compared with, beside those that it prints.
        small: how to scale its rows down; None if that makes no sense for all rows.
        seeds: the seeds of its runs; none for the fewest that a claim takes.
        trials: seeds at which every arm tries rows first. It is then compared in the row where it
            did best with them: rows are learning rates, say. None for a table whose rows are
            compared each on its own.
        first: numbers of the rows, from 1, that every arm tries; it goes on to the next row as long
            as its best is the last that it tried.
    """

    title: str
    config: ModuleType
    rows: tuple[Row, ...]
    score: str = "accuracy %"
    controls: tuple[str, ...] = ("default", "norm_matched")
    fields: Fields = dataclasses.field(default_factory=dict)
    small: Small | None = None
    doubt: str = ""
    hardware: str = ""
    seeds: tuple[int, ...] = ()
    trials: tuple[int, ...] = ()
    first: tuple[int, ...] = ()

    @property
    def trial_fields(self) -> Fields:
        """For trials, after all other fields: a test split of the training images.

        A text has a validation text anyway; sequences are drawn without end.
        """
        return {"data.held_out": 0.2} if self.trials and self.score == "accuracy %" else NOTHING


def over_rates(
    title: str,
    config: ModuleType,
    rates: Sequence[str],
    first: Sequence[str],
    arms: tuple[str, ...],
    arguments: Arguments = NOTHING,
    *,
    needs: str = "",
    seeds: int = 5,
    **options: Any,
) -> Table:
    """A table of our own whose rows are learning rates: each arm is compared at its own best one.

    Rates go from the lowest to the highest; `first` are those that every arm tries, `seeds` is how
    many are compared, and options are other fields of the table, such as its score.
    """
    rows = (
        Row(
            f"learning rate {rate}",
            arguments,
            arms=arms,
            fields={"optimizer.learning_rate": float(rate)},
            needs=needs,
        )
        for rate in rates
    )
    tried = tuple(1 + rates.index(rate) for rate in first)
    options = {"trials": (100, 101), "first": tried, "seeds": tuple(range(seeds)), **options}
    return Table(title, config, tuple(rows), controls=(), **options)


@dataclasses.dataclass(frozen=True)
class Figure:
    """A published figure, and how to draw it from our networks.

    Attributes:
        draw: name of a function in `mimetic_jax.analysis.figures`.
        options: its arguments; "examples" is the number of test examples of a figure of networks.
        rows: what must have been trained for it, each with its config file unless `table` has one;
            none for a figure that needs no training, or whose rows are those of `table`.
        table: name of the table whose config, fields and controls the rows share.
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
