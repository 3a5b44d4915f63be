import re

import pytest

from configs import digits_vit
from configs.default import default, model
from mimetic_jax import InputError
from mimetic_jax.analysis.fields import describe
from mimetic_jax.models import MODELS
from mimetic_jax.train.schema import schema


def listed(config):
    """The fields that a config sets, NAME=VALUE, and all others by name, each with its text."""
    changed, *groups, _ = describe(config).split("\n\n")
    assert max(map(len, describe(config).splitlines())) <= 80
    others = {}
    for head, _, lines in (group.partition("\n") for group in groups):
        topic = head.removeprefix("defaults").removeprefix(" of ")
        others |= {f"{topic}.{name}".lstrip("."): text for name, text in entries(lines)}
    return dict(entries(changed.partition("\n")[2])), others


def entries(lines):
    """The fields of a table with their text, whose further lines begin further to the right."""
    for entry in re.split(r"\n(?=  \S)", lines):
        name, _, text = entry.strip().partition("  ")
        yield name.strip(), " ".join(text.split())


@pytest.mark.parametrize("name", MODELS)
def test_every_field_of_a_model_has_a_meaning_and_its_default(name):
    config = default()
    config.model = model(name)
    fields = {field: of for field, of in schema("images", name).items() if "model." in field}
    changed, others = listed(config)
    assert fields.keys() - {"model.name"} <= others.keys()
    assert [field for field, of in fields.items() if not of.help] == []
    assert list(changed) == [f"model.name={name}" if name != "vit" else "nothing"]


def test_lines_of_a_config():
    changed, others = listed(digits_vit.get_config())
    assert changed["steps=200"].endswith("[integer ≥ 0]; default 0")
    assert changed["arms"].startswith("('default', 'norm_matched_mimetic', 'mimetic'); ")
    assert changed["model.pool=mean"].endswith("over patches [text]; default token")
    assert others["data.mean"].endswith("values, each a number in [-1000000, 1000000]]")
    assert others["optimizer.no_decay"].startswith("False no weight decay")
    assert others["optimizer.plateau"].startswith('""')
    assert others["data.dir"].startswith("none ")


def test_fields_without_a_description_are_listed_too():
    config = default()
    config.model = model("tests.plugged:TinyBatchNorm", width=4)
    config.mine = 3
    changed, _ = listed(config)
    assert "mine=3" in changed
    assert "model.width=4" in changed


def test_words_choose_fields_by_name_or_meaning():
    config = default("text")
    text = describe(config, ["norm"])
    assert "rms_norm" in text
    assert "model.width" not in text
    assert "fields with norm, of which" in text
    with pytest.raises(InputError, match="no field of unnamed has nonesuch in its help"):
        describe(config, ["nonesuch"])
