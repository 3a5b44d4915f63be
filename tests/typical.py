"""Of a property of many models or sizes a typical case is always tested, others if asked for."""

from collections.abc import Iterable
from typing import Any

import pytest


def typical(
    names: str | tuple[str, ...], cases: Iterable[Any], slow: Iterable[Any]
) -> pytest.MarkDecorator:
    """`pytest.mark.parametrize` by cases, some of them slow."""
    several = isinstance(names, tuple)
    marked = [pytest.param(*(c if several else [c]), marks=pytest.mark.slow) for c in slow]
    return pytest.mark.parametrize(names, [*cases, *marked])
