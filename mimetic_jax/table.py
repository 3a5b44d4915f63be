"""Text tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def aligned(rows: Sequence[Sequence[str]], numbers: Callable[..., str] = str.ljust) -> list[str]:
    """The lines of a table with its columns aligned, two spaces apart.

    Args:
        rows: the cells, as many in each row.
        numbers: how columns after the first are aligned, such as `str.rjust`.

    Example:
        >>> print(*aligned([("layer", "β"), ("block_0", "0.7")], str.rjust), sep="\\n")
        layer      β
        block_0  0.7
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([first.ljust(widths[0]), *map(numbers, cells, widths[1:])]).rstrip()
        for first, *cells in rows
    ]
