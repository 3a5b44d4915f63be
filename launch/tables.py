"""The papers' tables as data: a config, its rows and the published scores.

`python launch/sweep.py --table=NAME` trains one; the names are the keys of `TABLES`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        arguments: of the config file, "name=value,...".
        published: the paper's score per arm, in the unit of its column.
    """

    arguments: str
    published: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of one config file, whose path is relative to the root of the repository."""

    config: str
    rows: tuple[Row, ...]


def _size(width: int, depth: int, heads: int, base: float, mimetic: float) -> Row:
    arguments = f"width={width},depth={depth},heads={heads}"
    return Row(arguments, {"default": base, "mimetic": mimetic})


TABLES = {
    # Mimetic Initialization of Self-Attention Layers, table 1: ViTs of many sizes on CIFAR-10.
    "cifar10_sizes": Table(
        "configs/cifar10_vit.py",
        (
            _size(96, 6, 3, 84.75, 87.90),
            _size(96, 12, 3, 84.75, 88.84),
            _size(192, 6, 3, 85.85, 89.68),
            _size(192, 12, 1, 85.25, 89.88),
            _size(192, 12, 3, 86.07, 90.78),
            _size(192, 12, 6, 86.74, 91.38),
            _size(192, 24, 3, 86.36, 91.85),
            _size(384, 12, 3, 86.26, 91.56),
            _size(384, 12, 6, 84.40, 92.17),
            _size(384, 12, 12, 86.39, 92.30),
        ),
    ),
}
