"""Examples of docstrings as blocks of code in the site's reference."""

import sys
import types

import pytest


def test_each_example_has_a_fence_and_no_other_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "griffe", types.SimpleNamespace(Extension=object))
    from docs.code_blocks import fenced

    docstring = """Two examples.

    >>> one(
    ...     1)
    1

Example:
    >>> two = {"a": [1]}
    >>> two
    {'a': [1]}

Reference: none."""
    lines = fenced(docstring).splitlines()
    assert [line for line in lines if "```" not in line] == docstring.splitlines()
    marks = [number for number, line in enumerate(lines) if "```" in line]
    assert [lines[i] for i in marks] == ["    ```python", "    ```"] * 2
    assert [lines[i + 1].strip() for i in marks[::2]] == [">>> one(", '>>> two = {"a": [1]}']
    assert [lines[i - 1].strip() for i in marks[1::2]] == ["1", "{'a': [1]}"]
