"""What a published table or figure is, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Small:
    """How rows are scaled to what one CPU trains in minutes.

    Attributes:
        arguments: of the config, which replace those of the row.
        times: factors of a row's arguments, such as {"width": 0.5}; results are whole numbers.
        flags: of main.py, after those of the table.
        says: the scaling in words.
    """

    arguments: str = ""
    times: Mapping[str, float] = dataclasses.field(default_factory=dict)
    flags: tuple[str, ...] = ()
    says: str = ""

    def scaled(self, arguments: str) -> str:
        """A row's arguments, scaled down.

        >>> Small("patch=4", {"width": 0.5}).scaled("width=192,depth=12,heads=3")
        'width=96,depth=12,heads=3,patch=4'
        """
        values = _pairs(arguments)
        for name, factor in self.times.items():
            if name in values:
                values[name] = str(max(1, round(float(values[name]) * factor)))
        return ",".join(f"{k}={v}" for k, v in {**values, **_pairs(self.arguments)}.items())


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(",") if pair)


@dataclasses.dataclass(frozen=True)
class Row:
    """A line or column of a published table: one comparison, of which the paper prints some arms.

    Attributes:
        label: the row's name in the paper.
        arguments: of the config, "name=value,..."; without `init`. FILE.npz stands for the file
            that `needs` describes, FIRST_STAGE for the workdir of the training that it names.
        published: the printed score per arm of the config, in the table's unit.
        gains: the differences to the default that the paper prints beside them, per arm; signed
            as the scores are, where the sign is a color or an arrow.
        arms: others to train, or groups of the config's `init`: arms for which nothing is printed,
            and the row's own controls.
        others: printed scores of what has no arm here, by the paper's name.
        best: whether each printed score is the best of the row's printed arms.
        score: the unit of its numbers, where it isn't the table's.
        doubt: what keeps the numbers from being taken literally, if anything.
        flags: of main.py, for this row alone.
        config: the row's config file, where it isn't the table's.
        needs: what the row starts from, pretrained weights or a first stage; empty if nothing.
        small: how to scale it down, where the table's way doesn't serve.
    """

    label: str
    arguments: str = ""
    published: Mapping[str, float] = dataclasses.field(default_factory=dict)
    gains: Mapping[str, float] = dataclasses.field(default_factory=dict)
    arms: tuple[str, ...] = ()
    others: Mapping[str, float] = dataclasses.field(default_factory=dict)
    best: bool = False
    score: str = ""
    doubt: str = ""
    flags: tuple[str, ...] = ()
    config: str = ""
    needs: str = ""
    small: Small | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """A published table, or numbers of a section that belong together.

    Attributes:
        title: in a few words.
        config: the config file of its rows, relative to the root of the repository.
        score: the unit of its numbers, with the metric: "accuracy %".
        rows: as in the paper.
        controls: arms that every row is compared with, beside those that it prints.
        flags: of main.py, for all rows.
        small: how to scale it down; None where that makes no sense for all rows.
        doubt: of the whole table.
        hardware: as stated.
        seeds: of its runs; none for the fewest that a claim takes.
        trials: seeds at which every arm tries rows first. It is then compared in the row where it
            did best with them: rows are learning rates, say. None for a table whose rows are
            compared each on its own.
        first: numbers of the rows, from 1, that every arm tries; it goes on to the next row as long
            as its best is the last that it tried.
        trial_flags: of main.py for these runs, after all others: another test split.
    """

    title: str
    config: str
    score: str
    rows: tuple[Row, ...]
    controls: tuple[str, ...] = ("default", "norm_matched")
    flags: tuple[str, ...] = ()
    small: Small | None = None
    doubt: str = ""
    hardware: str = ""
    seeds: tuple[int, ...] = ()
    trials: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    trial_flags: tuple[str, ...] = ()


def over_rates(
    title: str,
    config: str,
    score: str,
    rates: Sequence[str],
    first: Sequence[str],
    *,
    arguments: str,
    arms: tuple[str, ...],
    seeds: int,
    trials: tuple[int, ...] = (100, 101),
    needs: str = "",
    flags: tuple[str, ...] = (),
) -> Table:
    """A table of our own whose rows are learning rates: each arm is compared at its own best one.

    Args:
        title, config, score: of the table.
        rates: of the rows, from the lowest.
        first: those that every arm tries.
        arguments: of the config file.
        arms: that are compared.
        seeds: how many.
        trials: seeds that choose the rate; none of them is compared.
        needs: what the rows take beside data.
        flags: of main.py, for all rows.
    """
    flag = "--config.optimizer.learning_rate"
    return Table(
        title,
        config,
        score,
        tuple(
            Row(f"learning rate {x}", arguments, arms=arms, flags=(f"{flag}={x}",), needs=needs)
            for x in rates
        ),
        controls=(),
        flags=flags,
        seeds=tuple(range(seeds)),
        trials=trials,
        first=tuple(1 + rates.index(rate) for rate in first),
        # A text has a validation text anyway; sequences are drawn without end.
        trial_flags=("--config.data.held_out=0.2",) if score == "accuracy %" else (),
    )


@dataclasses.dataclass(frozen=True)
class Figure:
    """A published figure, and how to draw it from our networks.

    Attributes:
        title: in a few words.
        draw: name of a function in `mimetic_jax.analysis.figures`.
        options: its arguments; "examples" is the number of test examples of a figure of networks.
        rows: what must have been trained for it, each with its config file unless `table` has one;
            none for a figure that needs no training, or whose rows are those of `table`.
        table: name of the table whose config, flags and controls the rows share.
        small: how its rows are scaled down.
        starts: networks that are drawn as they start; those that need a file, where it is given.
        doubt: of what the paper shows.
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
