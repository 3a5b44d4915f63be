"""The papers as data: every table and figure, with its published numbers.

>>> row = TABLES["attention/table1"].rows[5]
>>> row.label, row.published["mimetic"]
('192/12/6', 91.38)
"""

from collections.abc import Iterable

from papers import attention, mlp, questions, structured
from papers.record import Figure, Row, Table

PAPERS = {"attention": attention, "structured": structured, "mlp": mlp, "questions": questions}
"""A module per paper, and one for questions of our own."""

TABLES: dict[str, Table] = {
    f"{name}/{key}": table.named(f"{name}/{key}")
    for name, paper in PAPERS.items()
    for key, table in paper.TABLES.items()
}
"""By name, such as "attention/table1"."""

FIGURES: dict[str, Figure] = {
    f"{name}/{key}": figure.named(f"{name}/{key}")
    for name, paper in PAPERS.items()
    for key, figure in getattr(paper, "FIGURES", {}).items()
}
"""By name, such as "attention/figure1"."""


def rows_of(name: str, small: bool = False) -> list[Row]:
    """List the rows of a table or figure; with `small` those that have a scaled form, in that."""
    of = TABLES.get(name) or FIGURES[name]
    if isinstance(of, Figure) and of.table:  # drawn from a table's runs
        of = TABLES[of.table]
    return _scaled(of.rows, small)


def starts_of(figure: str, small: bool = False) -> list[Row]:
    """List the networks of a figure that are drawn as they start, as `rows_of` does rows."""
    return _scaled(FIGURES[figure].starts, small)


def _scaled(rows: Iterable[Row], small: bool) -> list[Row]:
    return [row.scaled() for row in rows if row.small] if small else list(rows)
