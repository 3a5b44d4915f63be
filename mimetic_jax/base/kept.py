"""Results that are kept as long as what they were computed from."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def kept_with_first(function: Callable[..., T]) -> Callable[..., T]:
    """Keep what a function returns for as long as its first argument exists.

    A cache that held data sets itself would keep all that a process has loaded. The arguments are
    positional and hashable, the first one by a weak reference.

    >>> class Text: ...
    >>> calls = []
    >>> count = kept_with_first(lambda text, window: calls.append(window) or window)
    >>> text = Text()
    >>> count(text, 2), count(text, 2), count(text, 5), calls
    (2, 2, 5, [2, 5])
    """
    results: weakref.WeakKeyDictionary[Any, dict[tuple[Any, ...], T]] = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def kept(first: Any, *others: Any) -> T:
        of_first = results.setdefault(first, {})
        if others not in of_first:
            of_first[others] = function(first, *others)
        return of_first[others]

    return kept
