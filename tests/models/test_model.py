"""Where models plug in: names, fields, and errors of one line."""

import json
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.default import default, model
from mimetic_jax import InputError
from mimetic_jax.models import MODELS, Model, Traits, model_fields
from mimetic_jax.rules.tables import attention_rules
from mimetic_jax.schemes import MeanShift, Mimetic
from mimetic_jax.train.config import to_json
from mimetic_jax.train.store.runs import Run
from tests.training import evaluations, quiet


def config_of(name, **fields):
    config = default()
    config.batch, config.steps, config.max_dispatch = 32, 4, 4
    config.eval.batch, config.log_every = 72, 2
    config.model = model(name, **fields)
    return config


@pytest.mark.parametrize("name", MODELS)
def test_a_configuration_has_the_fields_of_the_class(name):
    """With the defaults of the class: there is no other place where they stand."""
    filled = {"vocab": 10} if name == "gpt" else {"num_classes": 10}
    module = MODELS[name](**filled)
    for field, value in model_fields(name).items():
        own = getattr(module, field)
        assert value == (jnp.dtype(own).name if field == "dtype" else own)
    assert (default().model.name, default("text").model.name) == ("vit", "gpt")


RULES = attention_rules(query="wq", key="wk", value="wv", out="wo", flat=True)
FLAT, NO_BIAS = {"rules": RULES, "num_heads": 2}, Mimetic(zero_bias=False)
HEAD = (("head/kernel", "mlp_in", "d f"),)


@pytest.mark.parametrize(
    ("name", "scheme", "fields", "written"),
    [
        ("forms:LinenViT", MeanShift(0.5), {}, ["block_0/fc1/kernel", "block_1/fc1/kernel"]),
        ("forms:LinenViT", MeanShift(0.5), {"rules": HEAD}, ["head/kernel"]),
        ("plugged:FlatAttention", NO_BIAS, FLAT, [f"w{part}/kernel" for part in "kqvo"]),
    ],
)
def test_a_users_model_takes_a_scheme(name, scheme, fields, written):
    """By the stock rules, `fc1` and `fc2` of one parent being an MLP; or by the configuration's."""
    config = config_of(f"tests.{name}")
    config.scheme = (scheme,)
    config.update(fields)
    plan = quiet(config).arms["run"].program.plan(config.scheme)
    assert sorted(write.path for write in plan) == sorted(written)
    record = to_json(config)
    assert json.loads(json.dumps(record)) == record


@pytest.mark.slow
def test_a_users_text_model_returns_logits(tmp_path):
    for split in ("train", "valid", "test"):
        words = np.random.default_rng(0).choice(["a", "b", "c"], 400)
        (tmp_path / f"ptb.{split}.txt").write_text(" ".join(words))
    config = default("text")
    config.data.update(name="ptb_word", dir=str(tmp_path), length=12, valid=8)
    config.batch, config.steps, config.max_dispatch, config.eval.batch = 4, 4, 4, 8
    config.model = model("tests.plugged:TinyReader")
    config.scheme = (MeanShift(0.5),)
    comparison = quiet(config)
    comparison.train(tmp_path / "run")
    result = evaluations(Run.of(tmp_path / "run", "run", 0))[-1]
    program, data = comparison.arms["run"].program, comparison.arms["run"].on_device()
    state = comparison.restored(Run.of(tmp_path / "run", "run", 0))
    tokens = np.asarray(data.tests[""][0])
    logits = program.task.model.module.apply(state.variables, tokens[None, :-1])
    losses = -jax.nn.log_softmax(logits)[0, np.arange(len(tokens) - 1), tokens[1:]]
    assert result["eval_loss"] == pytest.approx(float(losses.mean()), rel=1e-5)


def test_another_name_on_the_command_line_keeps_the_fields_that_both_have():
    """What only the former model has is reported, once."""
    config = config_of("vit")
    config.model.update(name="tests.forms:LinenViT", width=24, depth=1)
    comparison = quiet(config, (said := []).append)
    module = comparison.arms["run"].program.task.model.module
    assert (module.width, module.depth) == (24, 1)
    kept = model_fields(config.model.name)
    lost = [field for field in model_fields("vit") if field not in kept]
    assert {"heads", "scan"} < {*lost}
    expected = [f"tests.forms:LinenViT has no field {', '.join(lost)}: left out of config.model"]
    assert said == expected


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("vitt", {}, "unknown model 'vitt'.*did you mean 'vit'"),
        ("no_such_module:Model", {}, "no_such_module can't be imported .ModuleNotFoundError"),
        ("tests.forms:LinenVit", {}, "did you mean 'LinenViT'"),
        ("tests.plugged:NotAModule", {}, "is not a flax.linen.Module or an nnx.Module"),
        ("tests.forms:LinenViT", {"widht": 3}, "field of model .*did you mean 'width'"),
        ("tests.plugged:WrongShape", {}, r"shape \(1, 7\) .*\(1, 8, 8, 1\), expected \(1, 10\)"),
        ("tests.plugged:Broken", {}, r"fails on input of shape \(1, 8, 8, 1\): TypeError"),
        ("tests.plugged:NeedsAWidth", {}, "needs a value: set config.model.breadth"),
        ("vit", {"dtype": "float23"}, "unknown model.dtype 'float23'"),
    ],
)
def test_bad_models_are_one_line(name, fields, words):
    config = config_of("vit")
    for field, value in {"name": name, **fields}.items():
        config.model[field] = value
    with pytest.raises(InputError, match=words):
        quiet(config)


class Counted(nn.Module):
    """A layer that counts how often it is traced, with any field."""

    field: Any
    traced: ClassVar[int] = 0

    @nn.compact
    def __call__(self, images):
        Counted.traced += 1
        return nn.Dense(3)(images)


@pytest.mark.parametrize(("field", "traces"), [(1, 1), ({"a": 1}, 2)], ids=["hashed", "a dict"])
def test_the_initialization_of_a_model_is_traced_once(field, traces):
    """Unless the model has no hash, as with a dict among its fields."""
    Counted.traced = 0
    for _ in range(2):
        model = Model("counted", Counted(field), Traits())
        variables, output = model.init(jax.random.key(0), jnp.ones((1, 4)))
    assert (variables["params"]["Dense_0"]["kernel"].shape, output.shape) == ((4, 3), (1, 3))
    assert Counted.traced == traces
