from __future__ import annotations

import pytest

from configs import digits_vit
from configs.default import DEFAULTS, default, model
from mimetic_jax.analysis.fields import describe, documented, fields
from mimetic_jax.errors import InputError
from mimetic_jax.models import MODELS


@pytest.mark.parametrize("task", DEFAULTS)
def test_every_field_has_a_comment_and_its_default(task):
    found = fields(DEFAULTS[task](), DEFAULTS)
    assert [field.name for field in found if not field.comment] == []
    assert [field.name for field in found if field.changed] == []
    assert len({field.name for field in found}) == len(found) > 60


@pytest.mark.parametrize("name", MODELS)
def test_every_field_of_a_model_has_a_comment(name):
    config = default()
    config.model = model(name)
    found = [field for field in fields(config, DEFAULTS) if field.name.startswith("model.")]
    assert [field.name for field in found if not field.comment] == []
    assert [field.name for field in found if field.changed] == ["model.name"] * (name != "vit")


def test_a_task_has_comments_of_its_own():
    comments = {
        task: {field.name: field.comment for field in fields(of(), DEFAULTS)}
        for task, of in DEFAULTS.items()
    }
    assert comments["text"]["data.length"] == "tokens of a window"
    assert comments["dyck"]["data.length"] == "tokens of a word"
    assert comments["text"]["log_every"] == comments["images"]["log_every"] == "steps"


def test_lines_of_a_config():
    lines = {
        line[2:].split()[0]: line
        for line in describe(digits_vit.get_config(), DEFAULTS).splitlines()
        if line[:2] in ("* ", "  ")
    }
    assert lines["steps"].startswith("* steps")
    assert "int    0  " in lines["steps"]
    assert "here 200; of training" in lines["steps"]
    assert lines["steps"].endswith("[at least 0 and at most 2,147,483,647]")
    assert lines["optimizer.betas"].endswith("[at least 0 and below 1]")
    assert "here ('default', 'norm_matched', 'mimetic'); " in lines["arms"]
    assert 'here mean; "token" (a class token' in lines["model.pool"]
    assert lines["tensorboard"].startswith("  tensorboard ")
    assert "[" not in lines["tensorboard"]
    assert '""' in lines["optimizer.plateau"]
    assert " none " in lines["data.dir"]


def test_fields_without_a_description_are_listed_too():
    config = default()
    config.model = model("tests.plugged:TinyBatchNorm", width=4)
    config.mine = 3
    found = {field.name: field for field in fields(config, DEFAULTS)}
    assert (found["mine"].comment, found["mine"].default, found["mine"].value) == ("", None, 3)
    assert found["model.width"].value == 4
    assert documented(int) == {}


def test_an_unknown_task_is_one_line():
    config = default()
    config.task = "image"
    with pytest.raises(InputError, match=r"unknown task 'image'.*did you mean 'images'"):
        describe(config, DEFAULTS)
