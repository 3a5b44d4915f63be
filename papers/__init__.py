"""The papers as data: every table and figure, with its published numbers.

>>> row = TABLES["attention/table1"].rows[5]
>>> row.label, row.published["mimetic"]
('192/12/6', 91.38)
"""

from papers import attention, mlp, questions, structured
from papers.record import Figure, Table

PAPERS = {"attention": attention, "structured": structured, "mlp": mlp, "questions": questions}
"""A module per paper, and one for questions of our own."""

TABLES: dict[str, Table] = {
    f"{name}/{key}": table for name, paper in PAPERS.items() for key, table in paper.TABLES.items()
}
"""By name, such as "attention/table1"."""

FIGURES: dict[str, Figure] = {
    f"{name}/{key}": figure
    for name, paper in PAPERS.items()
    for key, figure in getattr(paper, "FIGURES", {}).items()
}
"""By name, such as "attention/figure1"."""
