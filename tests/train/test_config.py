import json
import types

import pytest

from mimetic_jax import InputError
from mimetic_jax.command import shipped
from mimetic_jax.schemes import Mimetic, SinCos
from mimetic_jax.train import config as configs
from mimetic_jax.train.comparison import Comparison


def of(width=1, lr=0.1, flip=False, text="", init=("all",)):
    """What `get_config` of a config file may be."""


MODULE = types.SimpleNamespace(get_config=of)


def test_arguments_are_typed_like_their_defaults():
    found = shipped.parsed(MODULE, "width=96,lr=3e-3,flip=True,text=x=y,init=a+b")
    expected = {"width": 96, "lr": 3e-3, "flip": True, "text": "x=y", "init": ("a", "b")}
    assert found == expected
    assert shipped.parsed(MODULE, "") == {}
    assert shipped.parsed(MODULE, "7,lr=1") == {"width": 7, "lr": 1.0}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("widht=2", "did you mean 'width'"),
        ("flip=yes", "flip takes a bool"),
        ("lr=1,flip", "flip takes a bool"),
        ("wide", "width takes a int"),
    ],
)
def test_bad_arguments(text, words):
    with pytest.raises(InputError, match=words):
        shipped.parsed(MODULE, text)


def test_arms_override_what_they_name(tiny):
    config = tiny()
    config.arms.default = {"scheme": ()}
    config.arms.wide = {"model": {"width": 32}, "optimizer": {"learning_rate": 1}}
    arms = configs.arms_of(config)
    assert list(arms) == ["default", "wide"]
    assert arms["default"].scheme == ()
    assert arms["wide"].model.width == 32
    assert arms["wide"].optimizer.learning_rate == 1.0
    assert arms["wide"].model.depth == config.model.depth
    assert config.model.width == 16
    assert list(configs.arms_of(tiny())) == ["run"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"shceme": ()}, "field of arm bad 'shceme'.*did you mean 'scheme'"),
        ({"model": {"widht": 3}}, "did you mean 'model.width'"),
        ({"model": {"width": "wide"}}, "arm bad: .*width"),
        ({"seeds": (0, 1)}, "arm bad sets seeds, which all arms of a comparison share"),
        ({"together": 16, "batch": 8}, "arm bad sets together, which all arms"),
        (3, "arm bad is 3, not the fields that it overrides"),
        ({"scheme": ("mimetic",)}, "arm bad: 'mimetic' is not a scheme"),
        ({"scheme": ([Mimetic()],)}, "is not a scheme; pass one such as Mimetic.*none inside"),
        ({"scheme": (Mimetic,)}, r"arm bad: Mimetic is not a scheme: call it, Mimetic\(\)"),
    ],
)
def test_bad_arms(tiny, overrides, words):
    config = tiny()
    config.arms.bad = overrides
    with pytest.raises(InputError, match=words):
        configs.arms_of(config)


@pytest.mark.parametrize("name", ["a/", "/tmp/x", "a b", "α", "", "a\n", "x" * 101, "~"])
def test_an_arm_is_named_as_a_folder_can_be(tiny, name):
    config = tiny()
    config.arms = {name: {}}
    with pytest.raises(InputError, match="is not a name of letters, digits and _"):
        configs.arms_of(config)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"batch": 30}, "batch 30 is not divisible by 4 devices"),
        ({"eval.batch": 50}, "eval.batch 50 is not divisible by 4 devices"),
        ({"epochs": 1e9, "steps": 0, "optimizer.warmup": 0}, "are 44,000,000,000 steps, more than"),
        ({"epochs": 1.0}, "set epochs or steps, not epochs 1.0 and steps 12"),
        ({"seeds": ()}, r"seeds \(\) must be different numbers, at least one"),
        ({"eval.every_epochs": 1.0}, "set eval.every .4 steps. or every_epochs"),
        ({"optimizer.warmup_epochs": 1.0}, "set optimizer.warmup .2 steps. or warmup_epochs"),
        ({"name": " "}, "name is empty: the workdir is runs/NAME"),
        ({"label_smoothing": 0.1, "task": "text"}, "label_smoothing 0.1 is for images, not for t"),
    ],
)
def test_checks(tiny, overrides, words):
    with pytest.raises(InputError, match=words):
        configs.check(tiny(**overrides), per_epoch=44, devices=4)


PLAIN = {"arms": {"default": {"scheme": ()}}}
CLIPPED = {"arms": {"same": {"optimizer": {"clip": 1.0}}}}
UNCLIPPED = {"arms": {"same": {"optimizer": {"clip": 0.0}}}}
SINCOS = {"arms": {"default": {"scheme": (SinCos(),)}}}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (PLAIN, {"arms": {**PLAIN["arms"], "mimetic": {}}, "seeds": (0, 1), "together": 2}, None),
        (PLAIN, SINCOS, "arms.default.scheme is [] there and [{"),
        ({}, {"batch": 16}, "batch is 32 there and 16 here"),
        ({}, {"steps": 9, "optimizer": {"warmup": 3}}, "steps is 12 there and 9 here"),
        # A field of 0 is another value than that of the comparison.
        (CLIPPED, {"arms": {"same": {}}}, None),
        (CLIPPED, UNCLIPPED, "arms.same.optimizer.clip is 1.0 there and 0.0 here"),
        (CLIPPED, {"arms": {"same": {"scheme": ()}}}, "arms.same.scheme is [{"),
    ],
)
def test_what_a_workdir_may_continue_with(tiny, before, after, found):
    def record(overrides):
        config = tiny()
        config.update(overrides)
        return configs.to_json(config)

    difference = configs.difference(record(before), record(after))
    assert (difference is None) == (found is None)
    assert (difference or "").startswith(found or "")


def test_a_workdir_of_a_version_without_a_field_continues_where_that_is_off(tiny):
    record = configs.to_json(tiny())
    del record["ema"]
    assert configs.difference(record, configs.to_json(tiny())) is None
    other = configs.to_json(tiny(ema=0.5))
    assert configs.difference(record, other) == "ema is unset there and 0.5 here"


def test_a_rule_that_fits_no_parameter_is_reported(tiny):
    said = []
    Comparison(tiny(**{"optimizer.rate_rules": (("pos_embd", 0.0), ("head", 0.5))}), said.append)
    assert said == ["optimizer.rate_rules: no parameter's path has 'pos_embd'"]


@pytest.mark.parametrize("name", ["text", "cifar10_vit", "mlp_population"])
def test_a_recorded_configuration_is_read_again(name):
    """With its arms, schemes inside of schemes, and rules."""
    record = json.loads(json.dumps(configs.to_json(shipped.load(name))))
    again = configs.from_json(record)
    assert configs.to_json(again) == record
    ours, theirs = (configs.arms_of(config) for config in (again, shipped.load(name)))
    for arm, config in ours.items():
        assert tuple(config.scheme) == tuple(theirs[arm].scheme)
        assert tuple(config.rules) == tuple(theirs[arm].rules)
