"""docs/recipes.md: the records of the config files, whole and current."""

from __future__ import annotations

import importlib
import pathlib
import re

import pytest

from launch import recipes
from mimetic_jax.command import shipped

ROOT = pathlib.Path(__file__).parents[2]


def words(text: str) -> list[str]:
    """The words of a text, without what its Markdown is made of."""
    return re.sub(r"\]\(\S*?\)|[\\\[_*]|```", "", text).split()


def test_the_document_is_that_of_the_config_files() -> None:
    assert (ROOT / recipes.PATH).read_text() == recipes.render(), (
        "docs/recipes.md is stale: python launch/reproduce.py --docs"
    )


@pytest.mark.parametrize("name", shipped.names())
def test_no_word_of_a_record_is_lost(name: str) -> None:
    _, found, rest = (ROOT / recipes.PATH).read_text().partition(f"\n### {name}\n")
    assert found
    section = re.split(r"^##", rest, flags=re.MULTILINE)[0]
    for text in recipes.published(name):
        assert recipes.wrapped(text) in section
        section = section.replace(recipes.wrapped(text), "")
    config = importlib.import_module(f"configs.{name}")
    # The field Command has no label in the document, being a block of code.
    record = re.sub(r"^Command:", "", config.__doc__, flags=re.MULTILINE)
    assert words(section) == words(f"{record} {config.get_config.__doc__}")


def test_no_wrapped_line_begins_a_list() -> None:
    found = re.findall(r"^(?:\d+[.)]|[-+*]) .*", (ROOT / recipes.PATH).read_text(), re.MULTILINE)
    assert found == []


def test_fields_are_those_of_the_record() -> None:
    record = recipes.read(ROOT / "configs/tiny_imagenet_vit.py")
    assert record.paper == "Mimetic Initialization of Self-Attention Layers"
    (published,) = recipes.published("tiny_imagenet_vit")
    assert "attention/table4, accuracy %: Tiny ImageNet: default 45.24, mimetic 50.87" in published
    departures = record["Differs from the paper"]
    assert departures.startswith("as configs/cifar10_vit.py; the padding before the crop is 8 pix")
    assert departures.endswith("validation images.")
    assert record["Expected"] == ""
