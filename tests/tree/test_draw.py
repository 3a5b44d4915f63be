"""Shapes without values, and schemes as arguments of JAX's transformations."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mimetic_jax import InputError, attention_rules, rewrite
from mimetic_jax.nnx import initialize
from mimetic_jax.schemes import (
    Block,
    Context,
    Impulse,
    MeanShift,
    Mimetic,
    Scheme,
    SinCos,
    Zero,
    ZeroOut,
)
from tests.models.values import initial
from tests.noise import Noise
from tests.products import of_layer

NOISE = Noise()

KEY = jax.random.key(7)
D, H = 32, 2


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(D, name="fc2")(nn.gelu(nn.Dense(2 * D, name="fc1")(x)))


class Model(nn.Module):
    """Positions of patches, attention and an MLP by stock names."""

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(D, (2, 2), strides=2, name="patch_embed")(x).reshape(len(x), 16, D)
        x = x + self.param("pos_embed", nn.initializers.normal(0.02), (1, 16, D))
        for layer in range(2):
            x = x + nn.MultiHeadDotProductAttention(H, name=f"attention_{layer}")(x)
            x = x + MLP(name=f"mlp_{layer}")(x)
        return x


def params():
    return initial(Model(), jnp.ones((1, 8, 8, 3)))


def shapes():
    return jax.eval_shape(params)


def assert_equal(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def test_an_init_and_its_rewrite_are_one_program():
    """As the documents have it, for models whose parameters are sharded from the start."""
    scheme = (SinCos(), Mimetic())
    found = jax.jit(lambda key: rewrite(KEY, params(), scheme))(KEY)
    right = rewrite(KEY, params(), scheme)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-5), found, right)


@pytest.mark.parametrize("scheme", [Mimetic(), MeanShift(), Impulse()], ids=str)
def test_a_shape_is_not_rewritten(scheme):
    with pytest.raises(InputError, match="is a shape without values"):
        rewrite(KEY, shapes(), scheme)


@pytest.mark.parametrize("scheme", [NOISE, Zero(), ZeroOut()], ids=str)
def test_shapes_beyond_all_memory_are_refused(scheme):
    """XLA would end the process."""
    wide = dict.fromkeys(("query", "key", "value"), (2**20, 2**10, 2**10)) | {
        "out": (2**10, 2**10, 2**20)
    }
    block = Block.of({role: jax.ShapeDtypeStruct(s, jnp.float32) for role, s in wide.items()})
    with pytest.raises(InputError, match=r"GiB of memory, and .* GiB are available"):
        scheme(KEY, block, Context())


def test_a_scheme_is_an_argument_of_a_compiled_function():
    """Compiled once for equal schemes."""
    traces = []

    @dataclasses.dataclass(frozen=True)
    class Counted(Scheme):
        value: float = 1.0

        def writes(self, roles):
            return roles & {"out"}

        def draw(self, key, block, context):
            traces.append(self.value)
            return {"out": jnp.full(block.shapes["out"], self.value)}

    tree, compiled = params(), jax.jit(rewrite)
    for value in (1, 1.0, 2.0):
        new = compiled(KEY, tree, Counted(value))
        assert float(new["attention_0"]["out"]["kernel"].max()) == value
    assert traces == [1.0, 1.0, 2.0, 2.0]  # of two layers
    eager = rewrite(KEY, tree, (SinCos(), Mimetic()))
    for several in ((SinCos(), Mimetic()), [SinCos(), Mimetic()]):
        jitted = compiled(KEY, tree, several)
        layers = (of_layer(tree["attention_0"]) for tree in (jitted, eager))
        for found, right in zip(*layers, strict=True):
            np.testing.assert_allclose(found, right, atol=1e-5)
    keys = jax.random.split(KEY, 2)
    together = jax.vmap(rewrite, in_axes=(0, None, None))(keys, tree, NOISE)
    second = jax.tree.map(lambda leaf: leaf[1], together)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6)
    jax.tree.map(close, second, rewrite(keys[1], tree, NOISE))


def test_rules_are_arguments_too():
    rules = attention_rules(query="to_q", key="to_k", value="to_v", out="to_out")
    shape = {"to_q": (D, H, D // H), "to_k": (D, H, D // H)}
    tree = {"attention": {name: {"kernel": jnp.ones(dims)} for name, dims in shape.items()}}
    found = jax.jit(rewrite)(KEY, tree, NOISE, rules=rules)
    right = rewrite(KEY, tree, NOISE, rules=rules)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), found, right)


def test_rngs_give_the_next_key():
    tree, rngs, same = params(), nnx.Rngs(params=3), nnx.Rngs(params=3)
    assert_equal(rewrite(rngs, tree, NOISE), rewrite(same.params(), tree, NOISE))
    one, other = (nnx.MultiHeadAttention(H, D, decode=False, rngs=nnx.Rngs(0)) for _ in range(2))
    initialize(one, nnx.Rngs(3), Mimetic())
    initialize(other, nnx.Rngs(3).params(), Mimetic())
    assert_equal(nnx.state(one, nnx.Param), nnx.state(other, nnx.Param))
    with pytest.raises(InputError, match="no stream of parameters"):
        rewrite(nnx.Rngs(dropout=0), tree, NOISE)
