"""Every text is read and written as UTF-8, whatever the locale: its encoding is named."""

from __future__ import annotations

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = [
    ROOT / "main.py",
    *(
        path
        for folder in ("mimetic_jax", "launch", "papers", "configs", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ),
]


def unnamed(source: str) -> list[int]:
    """The lines of calls that open a text without naming its encoding."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        named = {keyword.arg for keyword in node.keywords}
        if name in ("read_text", "write_text"):
            of_metadata = name == "read_text" and node.args  # the file of an installed package
            wrong = "encoding" not in named and not of_metadata
        elif name in ("open", "fdopen"):
            given = [*node.args, *(k.value for k in node.keywords if k.arg == "mode")]
            modes = [a.value for a in given if isinstance(a, ast.Constant)]
            binary = any(isinstance(mode, str) and "b" in mode for mode in modes)
            text = (name == "open" and isinstance(node.func, ast.Name)) or modes
            wrong = bool(text) and not binary and not {"encoding", "force_zip64"} & named
        else:
            continue
        if wrong:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        ("open(path)", [1]),
        ("open(path, 'rb')", []),
        ("path.open('w')", [1]),
        ("path.open(mode='wb')", []),
        ("Image.open(file)", []),
        ("path.read_text()", [1]),
        ("path.write_text(text, encoding='utf-8')", []),
    ],
)
def test_what_counts(call: str, lines: list[int]) -> None:
    assert unnamed(call) == lines


def test_encodings_are_named() -> None:
    wrong = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in PROGRAM
        for line in unnamed(path.read_text(encoding="utf-8"))
    }
    assert not wrong
