"""The page's section about sharded models, whose doctests have one device elsewhere, on eight."""

import doctest
import pathlib
import re

import jax
import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "your_model.md"


@pytest.mark.slow
def test_the_examples_of_the_page():
    head, *sections = re.split(r"(?m)^(?=## )", PAGE.read_text(encoding="utf-8"))
    (section,) = (text for text in sections if text.startswith("## A sharded model"))
    examples = doctest.DocTestParser().get_doctest(head + section, {}, PAGE.name, str(PAGE), 0)
    names = examples.globs
    found = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(
        examples, clear_globs=False
    )
    assert found.failed == 0
    assert found.attempted > 20
    assert len(names["mesh"].devices) == jax.device_count() == 8
    for tree in (names["params"], names["drawn"], names["on_host"]):
        got = {len(leaf.addressable_shards[0].data.flatten()) for leaf in jax.tree.leaves(tree)}
        assert got == {128 * 128 // 8}
