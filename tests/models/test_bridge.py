"""Models of every form: their variables, their keys, their modes, and what they change."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mimetic_jax import InputError
from mimetic_jax.models import Model, Traits
from mimetic_jax.models.bridge import MODES, from_nnx
from tests.forms import FORMS, LinenViT

IMAGES = np.random.default_rng(7).normal(size=(6, 8, 8, 1)).astype(np.float32)
FIELDS = {"width": 8, "depth": 1, "dropout": 0.5}


def same(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.fixture(scope="module")
def linen():
    """(variables, logits, statistics after a step) of the Linen class, called without us."""
    model = LinenViT(3, **FIELDS)

    @jax.jit
    def called(key: jax.Array) -> Any:
        variables = model.init(key, IMAGES)
        options = {"train": True, "mutable": "batch_stats", "rngs": {"dropout": key}}
        tested, (_, changed) = (model.apply(variables, IMAGES, **o) for o in ({}, options))
        return variables, tested, changed

    return called(jax.random.key(0))


@pytest.mark.parametrize("form", FORMS)
def test_what_a_model_computes_and_changes(form, linen):
    model, (variables, logits, changed) = Model.of(FORMS[form], FIELDS, num_classes=3), linen
    shapes, _ = jax.eval_shape(model.init, jax.random.key(0), IMAGES)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, variables)
    apply = jax.jit(model.__call__)
    tested, state = apply(variables, IMAGES, None)
    same(state, {"batch_stats": variables["batch_stats"]})
    np.testing.assert_allclose(tested, logits, rtol=1e-5, atol=1e-6)
    first, again, other = (apply(variables, IMAGES, jax.random.key(seed)) for seed in (1, 1, 2))
    same(first, again)
    assert not np.allclose(first[0], other[0])
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), first[1], changed)


class Odd(nnx.Module):
    """Variables and random streams beside the usual ones."""

    def __init__(self, size: int, *, rngs: nnx.Rngs) -> None:
        self.drawn = nnx.Param(jax.random.normal(rngs.params(), (size,)))
        self.calls = nnx.BatchStat(jnp.zeros((), jnp.int32))
        self.layers = nnx.List(
            [nnx.Dropout(0.5, rngs=rngs, rng_collection=name) for name in ("dropout", "noise")]
        )

    def __call__(self, x: jax.Array, training: bool) -> jax.Array:
        self.calls[...] += training
        return jnp.stack([*(layer(x) for layer in self.layers), x + self.drawn.sum()])


def test_an_nnx_module_keeps_what_it_has_and_draws_from_the_key():
    model, ones = Model("odd", from_nnx(Odd, {"size": 4}), Traits()), jnp.ones(64)
    variables, output = jax.jit(model.init)(jax.random.key(5), ones)
    assert (output[:2] == 1).all()
    apply = jax.jit(model.__call__)
    masks, state = apply(variables, ones, jax.random.key(1))
    same(state, {"batch_stats": {"calls": jnp.int32(1)}})
    assert not (masks[0] == masks[1]).all(), "a stream of its own each"
    same(apply(variables, ones, jax.random.key(1)), (masks, state))
    for layer in range(2):
        assert not (apply(variables, ones, jax.random.key(2))[0][layer] == masks[layer]).all()
    same(apply(variables, ones, None), (output, {"batch_stats": variables["batch_stats"]}))


def flagged(flag: str, in_call: bool) -> nn.Module:
    """A layer of dropout whose flag is an argument of the call, or a field."""

    scope: dict[str, Any] = {"nn": nn}
    argument, value = (f", {flag}=False", flag) if in_call else ("", f"self.{flag}")
    negated = "not " if "train" in flag else ""
    field = "" if in_call else f"    {flag}: bool = False\n"
    exec(
        f"class Flagged(nn.Module):\n{field}    @nn.compact\n    def __call__(self, x{argument}):\n"
        f"        return nn.Dropout(0.5, deterministic={negated}{value})(nn.Dense(64)(x))\n",
        scope,
    )
    return scope["Flagged"]()


@pytest.mark.parametrize("in_call", [True, False], ids=["argument", "field"])
@pytest.mark.parametrize("flag", MODES)
def test_a_model_trains_with_dropout_and_is_tested_without(flag, in_call):
    model, x = Model("own", flagged(flag, in_call), Traits()), jnp.ones((2, 8))
    variables, tested = model.init(jax.random.key(0), x)
    assert (model(variables, x)[0] == tested).all()
    assert (tested != 0).all()
    zeros = (model(variables, x, jax.random.key(1))[0] == 0).mean()
    assert 0.3 < zeros < 0.7


class Late(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        self.scale = nnx.Param(jnp.ones(()))
        return x * self.scale


class Sows(nn.Module):
    collection: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        self.sow(self.collection, "total", x.sum())
        return nn.Dense(2)(x)


class Pair(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> Any:
        return nn.Dense(2)(x), {"tokens": x}


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (from_nnx(Late, {}), "its first call makes a parameter, scale, which would not be trained"),
        (Sows("losses"), "model own sows into losses, which training would leave out of the loss"),
        (Pair(), "model own returns a tuple, not an array: return the logits alone"),
    ],
)
def test_a_model_that_would_not_train_is_one_line(module, words):
    with pytest.raises(InputError, match=words):
        Model("own", module, Traits()).init(jax.random.key(0), jnp.ones(3))


def test_sown_intermediates_are_ignored():
    model = Model("own", Sows("intermediates"), Traits())
    assert list(model.init(jax.random.key(0), jnp.ones(3))[0]) == ["params"]
