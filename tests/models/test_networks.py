"""Networks of every form: their variables, their keys, and what they change."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mimetic_jax import InputError
from mimetic_jax.models import Model, Traits
from mimetic_jax.models.networks import Functions, Network
from mimetic_jax.models.nnx_network import NNX
from tests.forms import FORMS, LinenViT

IMAGES = jax.random.normal(jax.random.key(7), (6, 8, 8, 1))
FIELDS = {"width": 8, "depth": 1, "dropout": 0.5}


def same(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.fixture(scope="module")
def linen() -> Any:
    """(variables, logits, statistics after a step) of the Linen class, called without us."""
    model = LinenViT(3, **FIELDS)

    @jax.jit
    def called(key: jax.Array) -> Any:
        variables = model.init(key, IMAGES)
        options = {"train": True, "mutable": "batch_stats", "rngs": {"dropout": key}}
        return (
            variables,
            model.apply(variables, IMAGES),
            model.apply(variables, IMAGES, **options)[1],
        )

    return called(jax.random.key(0))


@pytest.mark.parametrize("form", FORMS)
def test_what_a_network_computes_and_changes(form: str, linen: Any) -> None:
    network, (variables, logits, changed) = (
        Model.of(FORMS[form], FIELDS, num_classes=3).network,
        linen,
    )
    shapes, _ = jax.eval_shape(network.init, jax.random.key(0), IMAGES)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, variables)
    apply = jax.jit(network.apply)
    tested, state = apply(variables, IMAGES, None)
    same(state, {"batch_stats": variables["batch_stats"]})
    np.testing.assert_allclose(tested, logits, rtol=1e-5, atol=1e-6)
    first, again, other = (apply(variables, IMAGES, jax.random.key(seed)) for seed in (1, 1, 2))
    same(first, again)
    assert not np.allclose(first[0], other[0])
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), first[1], changed)


class Odd(nnx.Module):
    """Everything that a module may keep besides its parameters."""

    traits = Traits(grid=lambda module, image: (module.size, image[0]))

    def __init__(self, size: int, *, rngs: nnx.Rngs) -> None:
        self.size = size
        self.drawn = jax.random.normal(rngs.params(), (size,))
        self.table = np.arange(size)
        placed = nnx.with_partitioning(nnx.initializers.ones_init(), ("model",))
        self.placed = nnx.Variable(placed(rngs.params(), (2,)))
        self.calls = nnx.Variable(jnp.zeros((), jnp.int32))
        self.layers = nnx.List([nnx.Dropout(0.5, rngs=rngs) for _ in range(2)])
        self.stack = nnx.vmap(lambda rngs: nnx.Dropout(0.5, rngs=rngs))(rngs.split(2))

    def __call__(self, x: jax.Array, train: bool, rngs: nnx.Rngs | None) -> jax.Array:
        self.calls[...] += train
        self.seen = nnx.Intermediate(x)
        stack = nnx.vmap(lambda layer, x: layer(x), in_axes=(0, None))(self.stack, x)
        more = x if rngs is None else x * rngs.bernoulli(0.5, x.shape)
        return jnp.stack([*(layer(x) for layer in self.layers), *stack, more])


def test_an_nnx_module_keeps_what_it_has_and_draws_from_the_key() -> None:
    network, ones = NNX(Odd, (("size", 4),)), jnp.ones(64)
    variables, output = jax.jit(network.init)(jax.random.key(5), ones)
    assert (output == 1).all()
    with nnx.use_eager_sharding(False):
        drawn = Odd(4, rngs=nnx.Rngs(jax.random.key(5))).drawn
    others = {"table": np.arange(4), "placed": jnp.ones(2), "calls": jnp.int32(0)}
    expected = {"drawn": drawn, **others}
    same(variables, {"state": expected})
    apply = jax.jit(network.apply)
    masks, state = apply(variables, ones, jax.random.key(1))
    assert len({mask.tobytes() for mask in np.asarray(masks)}) == 5, "a stream of its own each"
    same(state, {"state": expected | {"calls": jnp.int32(1)}})
    same(apply(variables, ones, jax.random.key(1)), (masks, state))
    assert not (apply(variables, ones, jax.random.key(2))[0] == masks).all()
    assert Model("odd", network, Odd.traits).grid((3, 5, 1)) == (4, 3)


class Late(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        self.scale = nnx.Param(jnp.ones(()))
        return x * self.scale


def no_params(key: jax.Array, inputs: jax.Array) -> Any:
    return {"weight": inputs}


def stateful(key: jax.Array, inputs: jax.Array) -> Any:
    return {"params": inputs, "seen": inputs}


def call(variables: Any, inputs: jax.Array) -> jax.Array:
    return inputs


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (NNX(Late), "its first call makes a parameter, scale, which would not be trained"),
        (Functions(no_params, call), r"no_params returns \['weight'\], not .* with 'params'"),
        (Functions(call, call), "call returns ArrayImpl, not a dictionary with 'params'"),
        (Functions(stateful, call), r"call must return \(output, {seen}\): stateful returns"),
    ],
)
def test_a_network_that_would_not_train_is_one_line(network: Network, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        network.init(jax.random.key(0), jnp.ones(3))
    assert "\n" not in str(caught.value)
