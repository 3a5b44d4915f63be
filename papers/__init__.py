"""The papers as data: every table and figure, with its published numbers.

>>> row = TABLES["attention/table1"].rows[5]
>>> row.label, row.published["mimetic"]
('192/12/6', 91.38)
"""

from papers import attention, evidence, league, mlp, recall, structured, today, trained, why
from papers.record import Figure, Table

PAPERS = {
    "attention": attention,
    "structured": structured,
    "mlp": mlp,
    "recall": recall,
    "evidence": evidence,
    "league": league,
    "trained": trained,
    "today": today,
    "why": why,
}
"""A module per paper, one for questions of our own, the league, what trained transformers say,
today's models, and why the structure helps."""

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
