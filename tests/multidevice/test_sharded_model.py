"""The page's section about sharded models, whose doctests have one device elsewhere, on eight."""

import doctest
import pathlib
import re

import jax
import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "clusters.md"


@pytest.mark.slow
def test_the_examples_of_the_page():
    sections = re.split(r"(?m)^(?=## )", PAGE.read_text(encoding="utf-8"))
    (section,) = (text for text in sections if text.startswith("## Sharded models of your own"))
    examples = doctest.DocTestParser().get_doctest(section, {}, PAGE.name, str(PAGE), 0)
    names = examples.globs
    found = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(
        examples, clear_globs=False
    )
    assert found.failed == 0
    assert found.attempted > 15
    assert len(names["mesh"].devices) == jax.device_count() == 8
    leaves = jax.tree.leaves(names["params"])
    assert {leaf.addressable_shards[0].data.size for leaf in leaves} == {128 * 128 // 8}
