"""The records of the config files in docs/: whole, each on one page."""

from __future__ import annotations

import functools
import importlib
import pathlib
import re

import pytest

from launch import recipes
from mimetic_jax.command import shipped
from papers import PAPERS

ROOT = pathlib.Path(__file__).parents[2]


def words(text: str) -> list[str]:
    """The words of a text, without what its Markdown is made of."""
    return re.sub(r"\]\(\S*?\)|[\\\[_*]|```", "", text).split()


@functools.cache
def pages() -> dict[str, str]:
    """The text of each page with records, by its path in docs/."""
    names = (recipes.OTHERS, *map(recipes.page_of, PAPERS))
    return {name: (ROOT / "docs" / name).read_text() for name in names}


@pytest.mark.parametrize("name", shipped.names())
def test_no_word_of_a_record_is_lost(name: str) -> None:
    """Each record is on one page, whole."""
    (section,) = (
        re.split(r"^##", page.partition(f"# {name}\n")[2], flags=re.MULTILINE)[0]
        for page in pages().values()
        if f"# {name}\n" in page
    )
    config = importlib.import_module(f"configs.{name}")
    # The field Command has no label in the document, being a block of code.
    record = re.sub(r"^Command:", "", config.__doc__, flags=re.MULTILINE)
    assert words(section) == words(f"{record} {config.get_config.__doc__}")


def test_the_index_leads_to_every_record() -> None:
    links = re.findall(r"^- \[(\w+)\]\((\S*)#(\w+)\): ", pages()[recipes.OTHERS], re.MULTILINE)
    assert [name for name, _, _ in links] == list(shipped.names())
    for name, page, anchor in links:
        assert anchor == name
        assert f"# {name}\n" in pages()[page or recipes.OTHERS]


def test_no_wrapped_line_begins_a_list() -> None:
    for page in pages().values():
        for paragraph in page.partition("## Configurations")[2].split("\n\n"):
            assert re.findall(r"^(?:\d+[.)]|[-+*]) .*", paragraph, re.MULTILINE) == []


def test_a_record_has_fields() -> None:
    record = recipes.read(ROOT / "configs/tiny_imagenet_vit.py")
    departures = " ".join(dict(record.parts)["Differs from the paper"].split())
    assert departures.startswith("as configs/cifar10_vit.py; the padding before the crop is 8 pix")
    assert departures.endswith("validation images.")
