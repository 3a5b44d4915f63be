"""The records of the config files as Markdown: what each reproduces, from its docstring."""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import re
import textwrap
from collections.abc import Iterator, Sequence

from mimetic_jax.command import shipped
from papers import PAPERS, TABLES

OTHERS = "recipes.md"
"""The page of the files of which no paper has a row."""

_INTRODUCTION = """# Recipes

Each file in `configs/` has a record: the paper's table, the command, the hardware that the paper
states, and every known difference. The records of a paper's files are on its page; those of which
no paper has a row are below. All are written by `python launch/reproduce.py --docs` from the
docstrings of the files.

`DIR` is the folder of the data ([your_data.md](your_data.md) says how to download it).
`--mode=plan` prints steps, schedule, parameters, FLOPs and memory of a command, and computes
nothing. Arguments follow the file: `--config=configs/NAME.py:argument=value,argument=value`; any
field is set by `--config.FIELD=VALUE`. Without a checkout, `mimetic train NAME:argument=value` is
the same.

"""
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


def records() -> list[Record]:
    """Those of all config files."""
    return [read(shipped.folder() / f"{name}.py") for name in shipped.names()]


def page_of(paper: str) -> str:
    """The page of a paper, in docs/."""
    return f"results_{paper}.md"


def render(found: Sequence[Record]) -> str:
    """docs/recipes.md: where each record is, and those of which no paper has a row."""
    pages = _pages(found)
    index = "".join(
        f"- [{record.name}]({_address(record.name, pages, OTHERS)}): {record.title}\n"
        for record in found
    )
    here = [record for record in found if pages[record.name] == OTHERS]
    return "\n".join([_INTRODUCTION + index, *_sections(here, pages, OTHERS, "##")])


def of_paper(paper: str, found: Sequence[Record]) -> Iterator[str]:
    """The records of a paper's files as the last part of its page."""
    pages, page = _pages(found), page_of(paper)
    if here := [record for record in found if pages[record.name] == page]:
        yield "## Configurations\n"
        yield from _sections(here, pages, page, "###")


def _pages(found: Sequence[Record]) -> dict[str, str]:
    """The page of each file's record: of the first paper with a row of it, or that it names."""
    pages: dict[str, str] = {}
    for name, table in TABLES.items():
        for row in table.rows:
            config = pathlib.PurePath(row.config or table.config).stem
            pages.setdefault(config, page_of(name.partition("/")[0]))
    titles = {paper: (of.__doc__ or paper).splitlines()[0] for paper, of in PAPERS.items()}
    for paper, title in titles.items():
        for record in found:
            if dict(record.parts).get("Paper", "").strip().startswith(f"{title.rstrip('.')}, "):
                pages.setdefault(record.name, page_of(paper))
    return {record.name: pages.get(record.name, OTHERS) for record in found}


def _address(name: str, pages: dict[str, str], here: str) -> str:
    """A link to a record, or to a document, from a page."""
    page = pages.get(name, name)
    anchor = f"#{name}" if name in pages else ""
    return anchor if page == here else f"{page}{anchor}"


def _sections(
    found: Sequence[Record], pages: dict[str, str], here: str, level: str
) -> Iterator[str]:
    def prose(text: str) -> str:
        """A paragraph as Markdown: other records and documents become links."""

        def link(match: re.Match[str]) -> str:
            target = match["document"] or match["record"]
            known = match["document"] or target in pages
            return f"[{match[0]}]({_address(target, pages, here)})" if known else match[0]

        text = re.sub(r"configs/(?P<record>\w+)\.py|docs/(?P<document>\w+\.md)", link, text)
        # A glob is not emphasis.
        parts = text.split("`")
        return wrapped("`".join(p if i % 2 else p.replace("*", r"\*") for i, p in enumerate(parts)))

    for record in found:
        yield f"{level} {record.name}\n"
        yield prose(record.title)
        for field, text in record.parts:
            if field == "Command":
                yield _commands(text)
            else:
                yield prose(f"_{field}_: {text}" if field else text)
        for paragraph in record.arguments.split("\n\n"):
            yield prose(paragraph)


def _commands(text: str) -> str:
    """Commands as a block of code, those that are long on several lines."""
    lines = []
    for command in re.split(r"\n(?=\s*python)", text.strip()):
        lines += [" \\\n    ".join(wrapped(command, 95).splitlines())]
    return "\n".join(["```", *lines, "```", ""])


def wrapped(text: str, width: int = 120) -> str:
    """A paragraph of a document."""
    text = " ".join(text.split())
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False) + "\n"
