from __future__ import annotations

import pytest

from configs import digits_vit
from configs.default import default, model
from mimetic_jax.analysis.fields import describe
from mimetic_jax.errors import InputError
from mimetic_jax.models import MODELS
from mimetic_jax.train.schema import schema


def lines(config):
    """The listed fields by name, each with its line."""
    listed = (line for line in describe(config).splitlines() if line[:2] in ("* ", "  "))
    return {line[2:].split()[0]: line for line in listed}


@pytest.mark.parametrize("name", MODELS)
def test_every_field_of_a_model_has_a_meaning_and_its_default(name):
    config = default()
    config.model = model(name)
    fields = {field: of for field, of in schema("images", name).items() if "model." in field}
    listed = lines(config)
    assert fields.keys() <= listed.keys()
    assert [field for field, of in fields.items() if not of.help] == []
    changed = [field for field in fields if listed[field].startswith("*")]
    assert changed == ["model.name"] * (name != "vit")


def test_lines_of_a_config():
    found = lines(digits_vit.get_config())
    assert found["steps"].startswith("* steps")
    assert found["steps"].split()[2:4] == ["int", "0"]
    assert "here 200; of training" in found["steps"]
    assert found["steps"].endswith("[at least 0 and at most 2,147,483,647]")
    assert found["optimizer.betas"].endswith("[at least 0 and below 1]")
    assert "here ('default', 'norm_matched', 'mimetic'); " in found["arms"]
    assert 'here mean; "token" (a class token' in found["model.pool"]
    assert found["tensorboard"].startswith("  tensorboard ")
    assert "[" not in found["tensorboard"]
    assert '""' in found["optimizer.plateau"]
    assert " none " in found["data.dir"]


def test_fields_without_a_description_are_listed_too():
    config = default()
    config.model = model("tests.plugged:TinyBatchNorm", width=4)
    config.mine = 3
    found = lines(config)
    assert "here 3;" in found["mine"]
    assert "4" in found["model.width"]


def test_an_unknown_task_is_one_line():
    config = default()
    config.task = "image"
    with pytest.raises(InputError, match=r"unknown task 'image'.*did you mean 'images'"):
        describe(config)
