"""An extension of Griffe for the site's reference: examples of docstrings as blocks of code, and
the notes of tables of rules.

Griffe takes the text under "Example:" for Markdown, in which `>>>` is a quotation in a quotation.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

from mimetic_jax.zoo import NOTES

_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n *\S.*)*", re.MULTILINE)


class CodeBlocks(griffe.Extension):
    """Put a fence around each example of each docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
            if obj.path.startswith("mimetic_jax.zoo.") and (note := NOTES.get(obj.name)):
                obj.docstring.value += f"\n\nNote that `plan` prints: {note}."


def fenced(docstring: str) -> str:
    """A docstring with its examples, up to the next empty line, as Markdown's blocks of code."""
    return _EXAMPLE.sub(r"\g<indent>```python\n\g<0>\n\g<indent>```", docstring)
