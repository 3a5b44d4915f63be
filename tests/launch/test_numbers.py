"""Measured numbers of pages stand in the pages of results/ that their sections link to."""

import pathlib
import re
from collections.abc import Iterator

import pytest

from launch.tables import BLOCK

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NUMBER = re.compile(r"(?<![\w.,])(?:\d[\d,]*)?\.\d+(?![\w.]*\d)")
WHOLE = re.compile(r"(?<![\w.,])\d[\d,]*(?![\w.,]*\d)")
SHARE = re.compile(r"(?<![\w.,−-])\d[\d,]*(?=%| of \d| → \d)|(?<= → )\d[\d,]*(?![\w.,]*\d)")
"""Whole numbers that are results: 46%, 8 of 10, 230 → 167."""

DERIVED = {
    "first_layer.md": {"8.3": "170.75 - 162.43", "4.7": "171.81 - 167.10"},
    "papers.md": {
        **{"3.35": "92.96 - 89.61", "4.52": "92.34 - 87.82"},
    },
    "recommended.md": {
        "0.58": "80.26 - 79.68",
        "0.19": "72.90 - 72.71",
        "2.87": "79.12 - 76.25",
        "0.08": "80.17 - 80.09",
        "0.68": "81.24 - 80.56",
    },
    "results.md": {"0.079": "2.447 - 2.368", "0.017": "1.258 - 1.241"},
    "trained.md": {"190": "104 + 39 + 27 + 20"},
}
"""Numbers that are computed from those of the linked pages, and how."""

CONSTANTS = {
    "README.md": {"3.13", "1.1", "2.0"},  # Python; GB that pip installs; the license
    "commands.md": {"0.5"},  # a constant of a scheme
    "data_formats.md": {"5"},  # what is held out, in percent
    # A threshold of p; √(2 · 45 · 55 / 1000); of intervals; what a test of statistics found.
    "evaluation.md": {"0.5", "2.2", "0", "45", "95", "96", "100"},
    "glossary.md": {"95"},
    "papers.md": {"0.71"},  # √½
    "results.md": {"0.4"},  # β
    "schemes.md": {"0.2", "0.5", "8.0", "20", "70"},  # α, β, S, a share, limits of another
}
"""Numbers that nobody measured, where no linked page has them."""


def numbers(text: str, *kinds: re.Pattern[str]) -> set[str]:
    """All with a decimal point and of other kinds, without signs and separators of thousands."""
    found = (x for kind in (NUMBER, *kinds) for x in kind.findall(text))
    return {re.sub(r"^\.", "0.", x.replace(",", "")) for x in found}


def prose(text: str) -> str:
    """A page without its generated tables, blocks, equations, code and addresses."""
    text = BLOCK.sub("", text)
    text = re.sub(r"^(```|\$\$).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`]*`|\$[^$\n]+\$|\]\([^)]*\)", "", text)


def sections(path: pathlib.Path) -> Iterator[tuple[str, set[str], set[str]]]:
    """Heading, the numbers below it, and the numbers of all pages that are linked below it."""
    for section in re.split(r"^(?=#+ )", path.read_text(), flags=re.MULTILINE):
        links = re.findall(r"\]\(([^)#\s]+\.md)", section)
        targets = {(path.parent / link).resolve() for link in links} - {path}
        known = {number for target in targets for number in numbers(target.read_text(), WHOLE)}
        yield section.partition("\n")[0].strip("# "), numbers(prose(section), SHARE), known


def is_known(number: str, known: set[str]) -> bool:
    """Whether one of some numbers rounds to a number; a last 5 may go either way."""
    digits = len(number.partition(".")[2])
    return any(
        number == f"{float(one) + shift:.{digits}f}"
        for one in known
        for shift in (-1e-9, 1e-9)
        if len(one.partition(".")[2]) >= digits
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_numbers_stand_in_linked_pages(path):
    derived, constants = DERIVED.get(path.name, {}), CONSTANTS.get(path.name, set())
    open_derived, open_others = set(derived), set(constants)
    for heading, stated, known in sections(path):
        for number in stated & derived.keys():
            if numbers(derived[number], WHOLE) <= known:
                result, digits = eval(derived[number]), len(number.partition(".")[2])
                assert f"{result:.{digits}f}" == number
                open_derived.discard(number)
                stated = stated - {number}
        unknown = {number for number in stated if not is_known(number, known)}
        missing = unknown - constants
        assert not missing, f"{path.name}, {heading}: no linked page has {missing}"
        open_others -= unknown
    assert (open_derived, open_others) == (set(), set())  # the lists have nothing else


def test_a_number_that_no_linked_page_has_is_found(tmp_path):
    (tmp_path / "table.md").write_text("| −0.0274 | 1,055.5 | .125 | 8 | 46.09 |")
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\nFrom 0.027 to 1055.5 ([table](table.md)), not 0.03, `0.4`, 8 of 10, 46%, 7 seeds.\n"
        "\n## B\n\n0.125, 8 of 9, 230 → 167"
    )
    (_, stated, known), (_, below, unlinked) = list(sections(page))[1:]
    assert {number for number in stated if not is_known(number, known)} == set()
    assert (below, unlinked) == ({"0.125", "8", "230", "167"}, set())
    assert not is_known("0.028", known)
    assert not is_known("0.02740", known)
