"""docs/recipes.md: what each config file reproduces, from its docstring and what papers print."""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import re
import textwrap
from collections.abc import Iterator, Set

from launch import tables
from mimetic_jax.command import shipped
from papers import TABLES
from papers.record import Row, Table

PATH = pathlib.Path("docs/recipes.md")

_INTRODUCTION = """# Recipes

What each file in `configs/` trains: the paper's table, the command, the hardware and scores that
the paper states, and every known difference. Written by `python launch/reproduce.py --docs` from
the docstrings of these files and from `papers/`, which has the published scores; what was trained
with this code is in [results.md](results.md).

`DIR` is the folder of the data ([your_data.md](your_data.md) says how to download it).
`--mode=plan` prints steps, schedule, parameters, FLOPs and memory of a command, and computes
nothing. Arguments follow the file: `--config=configs/NAME.py:argument=value,argument=value`; any
field is set by `--config.FIELD=VALUE`. Without a checkout, `mimetic train NAME:argument=value` is
the same.
"""
_OTHERS = "No row of a paper"
_HEADING = re.compile(
    r"((?:Papers?|Command|Hardware|Published|Expected|Chosen|Differs from the paper)(?:, [^:]*)?):"
    r"(.*)"
)


@dataclasses.dataclass(frozen=True)
class Record:
    """The docstring of a config file.

    Attributes:
        name: of the file, without its suffix.
        title: the first line.
        parts: (field, its text), in the order of the docstring, such as ("Hardware", "DeiT's code
            asks for …"); paragraphs outside of fields have the field "". A text may be several
            lines.
        arguments: the docstring of its `get_config`.
    """

    name: str
    title: str
    parts: tuple[tuple[str, str], ...]
    arguments: str

    def __getitem__(self, field: str) -> str:
        """The text of a field as one line, empty where the record lacks it."""
        texts = [text for name, text in self.parts if name.partition(",")[0] == field]
        return " ".join(" ".join(texts).split())

    @property
    def paper(self) -> str:
        """The title of the paper of which this is a row; empty for others."""
        row = self["Paper"]
        return "" if "(no row of it" in row else re.split(r"[,.(]", row)[0].strip()


def read(path: pathlib.Path) -> Record:
    """The record of a config file."""
    tree = ast.parse(path.read_text())
    title, *lines = (ast.get_docstring(tree) or "").splitlines()
    parts: list[tuple[str, list[str]]] = []
    continues = False  # whether a line without indentation belongs to the paragraph above
    for line in lines:
        heading = _HEADING.match(line)
        if heading:
            parts.append((heading[1], [heading[2]]))
        elif line.startswith(" ") or (line and continues):
            parts[-1][1].append(line)
        elif line:
            parts.append(("", [line]))
        continues = bool(line) and parts[-1][0] == ""
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    arguments = next(ast.get_docstring(node) for node in functions if node.name == "get_config")
    joined = tuple((name, "\n".join(text)) for name, text in parts)
    return Record(path.stem, title, joined, arguments or "")


def render() -> str:
    """The document."""
    found = [read(shipped.folder() / f"{name}.py") for name in shipped.names()]
    names = {record.name for record in found}
    papers = dict.fromkeys([*(record.paper for record in found if record.paper), ""])
    parts = [_INTRODUCTION]
    for paper in papers:
        parts.append(f"## {paper or _OTHERS}\n")
        for record in found:
            if record.paper == paper:
                parts += _section(record, names)
    return "\n".join(parts)


def _section(record: Record, names: Set[str]) -> Iterator[str]:
    yield f"### {record.name}\n"
    yield _prose(record.title, names)
    for field, text in record.parts:
        if field == "Command":
            yield _commands(text)
        else:
            yield _prose(f"_{field}_: {text}" if field else text, names)
    for text in published(record.name):
        yield _prose(text, set())
    for paragraph in record.arguments.split("\n\n"):
        yield _prose(paragraph, names)


def published(config: str) -> Iterator[str]:
    """What each table of the papers prints of a config file's rows, and on which hardware."""
    for name, table in TABLES.items():
        rows = [row for row in table.rows if row.published and _is_of(row, table, config)]
        if not rows or name.startswith("evidence/"):
            continue
        printed = "; ".join(
            f"{row.label}{f' ({row.score})' * bool(row.score)}: {_scores(row)}" for row in rows
        )
        hardware = rows[0].hardware or table.hardware or "not stated"
        yield f"_Published_, {name}, {table.score}: {printed}. Hardware: {hardware}."


def _is_of(row: Row, table: Table, config: str) -> bool:
    return pathlib.PurePath(row.config or table.config).stem == config


def _scores(row: Row) -> str:
    if row.best:  # of arms that share the printed score
        score = next(iter(row.published.values()))
        return f"best of {len(row.published)} arms {tables.printed(score)}"
    return ", ".join(f"{arm} {tables.printed(score)}" for arm, score in row.published.items())


def _commands(text: str) -> str:
    """Commands as a block of code, those that are long on several lines."""
    lines = []
    for command in re.split(r"\n(?=\s*python)", text.strip()):
        lines += [" \\\n    ".join(wrapped(command, 95).splitlines())]
    return "\n".join(["```", *lines, "```", ""])


def _prose(text: str, names: Set[str]) -> str:
    """A paragraph of a docstring as Markdown: other records and documents become links."""

    def link(match: re.Match[str]) -> str:
        target = match["document"] or (f"#{match['record']}" if match["record"] in names else "")
        return f"[{match[0]}]({target})" if target else match[0]

    text = re.sub(r"configs/(?P<record>\w+)\.py|docs/(?P<document>\w+\.md)", link, text)
    # A glob is not emphasis.
    parts = text.split("`")
    return wrapped("`".join(p if i % 2 else p.replace("*", r"\*") for i, p in enumerate(parts)))


def wrapped(text: str, width: int = 120) -> str:
    """A paragraph of a document."""
    text = " ".join(text.split())
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False) + "\n"
