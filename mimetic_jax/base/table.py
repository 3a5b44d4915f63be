"""Text tables, tuples that print as one, and lengths of time in words."""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeVar

T = TypeVar("T")

WIDTH = 80
"""Columns of a terminal."""


class Listing(tuple[T, ...]):
    """A tuple that prints as a table; a subclass declares what it holds besides, with defaults."""

    def __new__(cls, items: Iterable[T], **besides: Any) -> Self:
        found = super().__new__(cls, items)
        vars(found).update(besides)
        return found


def aligned(
    rows: Sequence[Sequence[str]],
    numbers: Callable[..., str] = str.ljust,
    *,
    wrapped: int | None = None,
) -> list[str]:
    """The lines of a table with its columns aligned, two spaces apart.

    Columns after the first are aligned by `numbers`; `wrapped` is the index of a column of text
    that goes on below if a line has no room for it.

    >>> print(*aligned([("layer", "β"), ("block_0", "0.7")], str.rjust), sep="\\n")
    layer      β
    block_0  0.7
    """
    if wrapped is not None:
        rows = list(_wrapped(rows, wrapped))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([first.ljust(widths[0]), *map(numbers, cells, widths[1:])]).rstrip()
        for first, *cells in rows
    ]


def paragraph(text: str, indent: str = "  ", width: int = WIDTH) -> str:
    """Text in lines of at most so many columns, those after the first indented."""
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def duration(seconds: float, *, rounded: bool = False) -> str:
    """A length of time, as minutes from two of them on; of hours, rounded, two digits count.

    >>> duration(75.3), duration(1080), duration(9000), duration(16872, rounded=True)
    ('75 s', '18 min', '2:30:00 h', '4.7 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if rounded:
        return f"{seconds / 3600:{'.0f' if seconds > 36000 else '.1f'}} h"
    return f"{datetime.timedelta(seconds=round(seconds))} h"


def _wrapped(rows: Sequence[Sequence[str]], column: int) -> Iterator[Sequence[str]]:
    widths = [max(map(len, cells)) + 2 for cells in zip(*rows, strict=True)]
    room = max(WIDTH - sum(widths) + widths[column], 20)
    for row in rows:
        cells = list(row)
        for text in textwrap.wrap(cells[column], room, break_on_hyphens=False) or [""]:
            cells[column] = text
            yield cells
            cells = [""] * len(cells)
