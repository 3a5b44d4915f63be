"""What can be trained: the rows of tables and figures, complete, and their configurations."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Sequence

from ml_collections import ConfigDict

from mimetic_jax.command import shipped
from mimetic_jax.command.assign import assign
from mimetic_jax.train import rates
from papers import FIGURES, TABLES
from papers.record import FILE, Row, Small


def rows(name: str, small: bool = False) -> list[Row]:
    """The rows of a table or of a figure, complete; with `small` those that have a scaled form."""
    if name in FIGURES:
        figure = FIGURES[name]
        if figure.table:  # drawn from a table's runs
            return rows(figure.table, small)
        return _numbered(name, figure.rows, figure.small, small)
    table = TABLES[name]
    complete = [
        dataclasses.replace(
            row,
            fields={**table.fields, **row.fields},
            config=row.config or table.config,
            arms=()
            if row.is_untrained
            else tuple(dict.fromkeys((*row.published, *row.arms, *table.controls))),
            score=row.score or table.score,
            seeds=row.seeds or table.seeds,
            ladder=row.ladder or table.ladder,
        )
        for row in table.rows
    ]
    return _numbered(name, complete, table.small, small)


def starts(figure: str, small: bool = False) -> list[Row]:
    """The networks of a figure that are drawn as they start."""
    return _numbered(figure, FIGURES[figure].starts, FIGURES[figure].small, small)


def _numbered(name: str, every: Sequence[Row], scale: Small | None, small: bool) -> list[Row]:
    """Rows with the name of their table and their number, scaled down if `small`."""
    numbered = [
        dataclasses.replace(row, table=name, number=number, is_small=small)
        for number, row in enumerate(every, 1)
    ]
    if not small:
        return numbered
    return [
        dataclasses.replace(
            row, arguments=own.scaled(row.arguments), fields={**row.fields, **own.fields}
        )
        for row in numbered
        if (own := row.small or scale) is not None
    ]


def load(row: Row) -> ConfigDict:
    """The configuration of a row with its arms; with those of the config, if one of the two names
    none."""
    given = {
        name: row.file if row.file and value == FILE else value
        for name, value in row.arguments.items()
    }
    assert row.config is not None
    if row.arms and "init" in shipped.arguments_of(row.config):
        given["init"] = row.arms
    config = shipped.configuration(row.config, given)
    for name, value in row.fields.items():
        assign(config, name, value)
    return config


def folder(row: Row) -> str:
    """The workdir of a row, among those of others: by table, label and what else differs.

    >>> folder(rows("attention/table1")[1])
    'attention_table1/96_12_3'
    >>> folder(rows("questions/bases")[0].at(1e-3, trial=True))
    "questions_bases/timm's_initialization_rate_1e-3_trials"

    Long labels are cut, and end in a digest of what is lost.

    >>> folder(Row("width=96 " * 20, table="cifar10_vit"))[-20:]
    '96_width=96_14ebb47e'
    """
    table, label, _ = row.key
    name = re.sub(r"[^\w=.+'-]+", "_", label) or "row"
    if len(name) > 80:
        name = f"{name[:71]}_{hashlib.sha256(label.encode()).hexdigest()[:8]}"
    parts = [name]
    if row.is_small:
        parts.append("small")
    if row.rate is not None:
        parts.append(f"rate_{rates.shown(row.rate)}")
        if row.is_trial:
            parts.append("trials")
    if row.file:
        parts.append(f"from_{pathlib.Path(row.file).stem}")
    return f"{table.replace('/', '_')}/{'_'.join(parts)}"
