"""Lengths of time in words."""

from __future__ import annotations

import datetime


def duration(seconds: float) -> str:
    """A length of time, as minutes from two of them on.

    >>> duration(75.3), duration(1080), duration(9000)
    ('75 s', '18 min', '2:30:00 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{datetime.timedelta(seconds=round(seconds))} h"
